// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"time"

	pb "steelyard/internal/gen/controllerpb"

	"github.com/spf13/cobra"
)

func (a *app) authorityCommand() *cobra.Command {
	command := group("authority", "Show and replace the authority that signs a controller's certificates")
	request := &pb.ReplaceAuthorityRequest{}
	replace := &cobra.Command{
		Use: "replace", Short: "Have another authority sign all certificates", Args: args(0, 0),
		Long: "First all members and controllers learn of the new one; then it signs, and they get certificates of it; then the former one ends. Agents and controllers do " +
			"so by themselves within seconds, each user by one command at each of the two steps; nobody joins again who is there within 30 days. `steelyard authority show` says who is missing. " +
			"Tokens that were made before the new one signs are of no use afterwards.",
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := ask(c.Context(), a, a.controllers().ReplaceAuthority, request)
			return err
		},
	}
	replace.Flags().BoolVar(&request.Distrust, "distrust", false, "its key was stolen: all certificates and tokens are void at once, also on open connections, and all members have to join again")
	show := &cobra.Command{
		Use: "show", Short: "Show the authorities whose certificates hold", Args: args(0, 0),
		Long: "There is one, which `signs`. While it is being replaced there is also the `next` one, or a `former` one, and the members for whom the replacement waits. " +
			"Who is away for more than 30 days is not waited for, as its certificate has expired.",
		RunE: func(c *cobra.Command, _ []string) error {
			response, err := ask(c.Context(), a, a.controllers().ListAuthorities, &pb.ListAuthoritiesRequest{})
			if err != nil {
				return err
			}
			return a.showAuthorities(response)
		},
	}
	a.outputFlag(show)
	command.AddCommand(replace, show)
	return command
}

type authoritiesView struct {
	Authorities []authorityView `json:"authorities"`
	WaitingFor  []string        `json:"waiting_for"`
	Since       string          `json:"since"` // of the replacement's present step; "": there is none
}

type authorityView struct {
	KeyHash string `json:"key_hash"`
	State   string `json:"state"`
	Expires string `json:"expires"`
}

func (a *app) showAuthorities(response *pb.ListAuthoritiesResponse) error {
	when := func(at uint64) string { return time.Unix(int64(at), 0).UTC().Format(time.RFC3339) }
	view := authoritiesView{Authorities: []authorityView{}, WaitingFor: append([]string{}, response.GetWaitingFor()...)}
	for _, one := range response.GetAuthorities() {
		state := strings.ToLower(strings.TrimPrefix(one.GetState().String(), "STATE_"))
		view.Authorities = append(view.Authorities, authorityView{one.GetKeyHash(), state, when(one.GetExpiresUnixS())})
	}
	if since := response.GetSinceUnixS(); since != 0 {
		view.Since = when(since)
	}
	return a.show(view, func() {
		t := &table{columns: []column{left("KEY"), left("STATE"), left("EXPIRES"), left("SINCE"), left("WAITS FOR")}}
		for _, one := range view.Authorities {
			since, waits := "", ""
			if one.State != "signs" {
				since, waits = view.Since, strings.Join(view.WaitingFor, " ")
			}
			t.add(one.KeyHash, one.State, one.Expires, since, waits)
		}
		a.print(t)
	})
}

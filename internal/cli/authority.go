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
		Use: "replace", Short: "Replace the authority that signs all certificates", Args: args(0, 0),
		Long: "The replacement has three steps: all members and controllers trust the new authority; it signs, and they get new certificates; the former authority ends. Agents and controllers do " +
			"this automatically within seconds, a user by running one command in each of the first two steps. A member that connects within 30 days need not join again. `steelyard authority show` names missing members. " +
			"Tokens that were created before the new authority signs are void afterwards.",
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := ask(c.Context(), a, a.controllers().ReplaceAuthority, request)
			return err
		},
	}
	replace.Flags().BoolVar(&request.Distrust, "distrust", false, "its key was stolen: void all certificates and tokens at once, and close open connections; all members have to join again")
	show := &cobra.Command{
		Use: "show", Short: "Show the authorities whose certificates are valid", Args: args(0, 0),
		Long: "One authority `signs`. During its replacement there is also a `next` one or a `former` one, and the list of members for which the replacement waits. " +
			"It does not wait for members that have been disconnected for more than 30 days, because their certificates have expired.",
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
	Since       string          `json:"since"` // of the replacement's current step; "": no replacement
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

// SPDX-License-Identifier: Apache-2.0

// Commands runs `steelyard` commands one after another in one process. The start of a process takes 25 ms of processor
// time, mostly to initialise packages, and the tests of traffic need thousands of commands.
//
// Standard input has one JSON object for each command, standard output one for its result.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"

	"steelyard/internal/cli"
)

type command struct {
	Args  []string `json:"args"`
	Stdin string   `json:"stdin"`
}

type result struct {
	Code   int    `json:"code"` // exit status
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
}

func run(c command) result {
	var out, errOut bytes.Buffer
	code := cli.Run(c.Args, bytes.NewBufferString(c.Stdin), &out, &errOut)
	return result{code, out.String(), errOut.String()}
}

// serve answers commands until the input ends.
func serve(in io.Reader, out io.Writer) error {
	commands, results := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var c command
		if err := commands.Decode(&c); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := results.Encode(run(c)); err != nil {
			return err
		}
	}
}

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		panic(err)
	}
}

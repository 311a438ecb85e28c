// Command pg-operator is the operator and, in the pods of its databases, the agent.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/acme/pg-operator/instance"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/manager"
)

func main() {
	root := newRoot()
	root.SetArgs(withRole(os.Args[1:]))
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "pg-operator:", err)
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "pg-operator",
		Short:         "PostgreSQL on Kubernetes: the operator and its agents",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(manager.NewCommand(), instance.NewCommand(), &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(command.OutOrStdout(), "pg-operator %s (%s)\n", contract.Version, runtime.Version())
			return err
		},
	})
	return root
}

// withRole makes `manager` the role when flags, or nothing, come first.
func withRole(args []string) []string {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") && args[0] != "-h" && args[0] != "--help" {
		return append([]string{"manager"}, args...)
	}
	return args
}

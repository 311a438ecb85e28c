package instance

import (
	"github.com/spf13/cobra"

	"github.com/acme/pg-operator/instance/fence"
)

// newSentinelCommand makes the subcommand that the agent starts itself as.
func newSentinelCommand() *cobra.Command {
	dir := ""
	command := &cobra.Command{
		Use:          "sentinel",
		Short:        "End PostgreSQL when the licence of the agent that started this program ends",
		Hidden:       true,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE:         func(*cobra.Command, []string) error { return fence.Stand(dir) },
	}
	command.Flags().StringVar(&dir, "data", "", "data directory of PostgreSQL")
	if err := command.MarkFlagRequired("data"); err != nil {
		panic(err) // The flag is defined above.
	}
	return command
}

// sentinel is the command that is the sentinel of a data directory: this program, even if its file was replaced.
func sentinel(dir string) []string {
	return []string{"/proc/self/exe", "instance", "sentinel", "--data", dir}
}

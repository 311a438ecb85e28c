// Package instance is the agent inside every PostgreSQL pod: the role of the
// program that bootstraps, replicates and fences one instance.
package instance

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/contract"
)

// NewCommand makes the subcommand "instance".
func NewCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "instance",
		Short: "Run inside the pods of a PostgresCluster",
		Args:  cobra.NoArgs,
	}
	command.AddCommand(newInstallCommand(), newRunCommand(), newSentinelCommand())
	return command
}

func newInstallCommand() *cobra.Command {
	to := naming.PathAgentBin
	command := &cobra.Command{
		Use:   "install",
		Short: "Copy this program to where the postgres container finds it",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return install(to) },
	}
	command.Flags().StringVar(&to, "to", to, "path of the copy")
	return command
}

// defaultShutdownTimeout leaves time for ending at once, and for the last words to the API server.
const defaultShutdownTimeout = (contract.TerminationGraceSeconds - 10) * time.Second

func newRunCommand() *cobra.Command {
	o := runOptions{}
	command := &cobra.Command{
		Use:   "run",
		Short: "Run PostgreSQL as an instance of a cluster",
		Long: "Run PostgreSQL as an instance of a cluster, as the first process of its container.\n" +
			"The environment has POD_NAME, POD_NAMESPACE, POD_UID and POD_IP.",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE:         func(command *cobra.Command, _ []string) error { return run(command.Context(), o) },
	}
	command.Flags().StringVar(&o.cluster, "cluster", "", "name of the PostgresCluster")
	command.Flags().DurationVar(&o.shutdownTimeout, "shutdown-timeout", defaultShutdownTimeout,
		"time PostgreSQL has for a clean shutdown; a little less than the pod's termination grace period")
	if err := command.MarkFlagRequired("cluster"); err != nil {
		panic(err) // The flag is defined above.
	}
	return command
}

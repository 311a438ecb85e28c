// Command cluster runs a real Kubernetes on one Linux machine, for trying the
// operator and for its end-to-end tests.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/acme/pg-operator/test/cluster/internal/cluster"
	"github.com/acme/pg-operator/test/cluster/internal/programs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "A real Kubernetes on one Linux machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(buildCommand(), upCommand(), downCommand(), nodeCommand(), imageCommand(),
		kubeconfigCommand(), envCommand(), statusCommand(), logsCommand(), signalCommand(), execCommand(), kubectlCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// source is the directory of this Go module in the checkout around the current
// directory.
func source() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return programs.FindSource(dir)
}

func buildCommand() *cobra.Command {
	purpose := string(programs.ForE2E)
	command := &cobra.Command{
		Use:   "build",
		Short: "Build the programs into the cache",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if purpose != string(programs.ForAPI) && purpose != string(programs.ForE2E) {
				return fmt.Errorf("--for=%s: want api or e2e", purpose)
			}
			dir, err := source()
			if err != nil {
				return err
			}
			layout, err := cluster.Offline(dir)
			if err != nil {
				return err
			}
			builder := programs.Builder{Source: dir, Cluster: layout, Out: command.ErrOrStderr()}
			return builder.Build(command.Context(), programs.Purpose(purpose))
		},
	}
	command.Flags().StringVar(&purpose, "for", purpose, "what to build for: api (tests against the API server alone) or e2e (the whole cluster)")
	return command
}

func upCommand() *cobra.Command {
	var options cluster.Options
	nodes := 1
	command := &cobra.Command{
		Use:   "up",
		Short: "Start the cluster, or repair it",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			for i := 1; i <= nodes; i++ {
				options.Nodes = append(options.Nodes, fmt.Sprintf("n%d", i))
			}
			options.Out = command.ErrOrStderr()
			if options.Source, err = source(); err != nil {
				return err
			}
			return cluster.Up(command.Context(), options)
		},
	}
	command.Flags().IntVar(&nodes, "nodes", nodes, "how many nodes to have at least")
	command.Flags().StringSliceVar(&options.Images, "images", nil, "images to build and load, see image list")
	command.Flags().StringVar(&options.Kubectl, "kubectl", "", "where to write a kubectl for this cluster")
	return command
}

func downCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Remove the cluster; programs and images stay cached",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return cluster.Down(command.Context(), command.ErrOrStderr())
		},
	}
}

func kubeconfigCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of the administrator's kubeconfig",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			path, err := cluster.Kubeconfig()
			if err == nil {
				fmt.Fprintln(command.OutOrStdout(), path)
			}
			return err
		},
	}
}

func envCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "env",
		Short: "Print shell exports for tests and tools",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			dir, err := source()
			if err != nil {
				return err
			}
			return cluster.Env(dir, command.OutOrStdout())
		},
	}
}

func statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Print the processes and their memory",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return cluster.Status(command.OutOrStdout())
		},
	}
}

func logsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "logs DIR",
		Short: "Collect all logs and objects into a directory",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return cluster.CollectLogs(command.Context(), args[0])
		},
	}
}

func signalCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "signal PROCESS SIGNAL",
		Short: "Send a process of the cluster a signal, such as kube-apiserver STOP, and CONT later",
		Args:  cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			return cluster.Signal(args[0], args[1])
		},
	}
}

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/acme/pg-operator/test/cluster/internal/cluster"
	"github.com/acme/pg-operator/test/cluster/internal/images"
	"github.com/acme/pg-operator/test/cluster/internal/layout"
)

func nodeCommand() *cobra.Command {
	parent := &cobra.Command{Use: "node", Short: "Add, cut and heal nodes"}
	parent.AddCommand(
		&cobra.Command{
			Use:   "add NAME",
			Short: fmt.Sprintf("Add a node; names are n1 to n%d", layout.MaxNodes),
			Args:  cobra.ExactArgs(1),
			RunE: func(command *cobra.Command, args []string) error {
				dir, err := source()
				if err != nil {
					return err
				}
				if _, err := cluster.Kubeconfig(); err != nil {
					return err
				}
				return cluster.Up(command.Context(), cluster.Options{Source: dir, Nodes: args, Out: command.ErrOrStderr()})
			},
		},
		cutCommand(),
		&cobra.Command{
			Use:   "heal NAME",
			Short: "Undo every cut of a node",
			Args:  cobra.ExactArgs(1),
			RunE: func(command *cobra.Command, args []string) error {
				return cluster.Heal(command.Context(), args[0])
			},
		},
		&cobra.Command{
			Use:   "list",
			Short: "Print the nodes and their cuts",
			Args:  cobra.NoArgs,
			RunE: func(command *cobra.Command, _ []string) error {
				return cluster.ListNodes(command.Context(), command.OutOrStdout())
			},
		},
	)
	return parent
}

func cutCommand() *cobra.Command {
	from, oneWay, loss := "", false, 0
	command := &cobra.Command{
		Use:   "cut NAME",
		Short: "Take a node off the network, or drop packets between it and a peer",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if command.Flags().Changed("loss") {
				return cluster.Lose(command.Context(), args[0], loss)
			}
			return cluster.Cut(command.Context(), args[0], from, oneWay)
		},
	}
	command.Flags().StringVar(&from, "from", "", "cut only from this node, or from the API server (api)")
	command.Flags().BoolVar(&oneWay, "one-way", false, "with --from: drop only what NAME sends")
	command.Flags().IntVar(&loss, "loss", loss, "lose only that `percent` of the packets, by chance, in each direction")
	command.MarkFlagsMutuallyExclusive("loss", "from")
	command.MarkFlagsMutuallyExclusive("loss", "one-way")
	return command
}

func imageCommand() *cobra.Command {
	parent := &cobra.Command{Use: "image", Short: "Put images on the nodes"}
	parent.AddCommand(
		&cobra.Command{
			Use:   "list",
			Short: "Print the images that can be built",
			Args:  cobra.NoArgs,
			RunE: func(command *cobra.Command, _ []string) error {
				for _, name := range images.Names() {
					fmt.Fprintln(command.OutOrStdout(), name)
				}
				return nil
			},
		},
		&cobra.Command{
			Use:   "load NAME...",
			Short: "Build images where the cache lacks them and load them",
			Args:  cobra.MinimumNArgs(1),
			RunE: func(command *cobra.Command, args []string) error {
				return cluster.LoadImages(command.Context(), args, command.ErrOrStderr())
			},
		},
		&cobra.Command{
			Use:   "load-archive FILE",
			Short: "Load the images of a docker archive",
			Args:  cobra.ExactArgs(1),
			RunE: func(command *cobra.Command, args []string) error {
				return cluster.LoadArchive(command.Context(), args[0], command.ErrOrStderr())
			},
		},
		&cobra.Command{
			Use:   "tree NAME",
			Short: "Unpack a PostgreSQL image into the cache and print the directory",
			Args:  cobra.ExactArgs(1),
			RunE: func(command *cobra.Command, args []string) error {
				cache, err := layout.CacheDir()
				if err != nil {
					return err
				}
				dir, err := images.Tree(command.Context(), cache, args[0], func(message string) {
					fmt.Fprintln(command.ErrOrStderr(), message)
				})
				if err == nil {
					fmt.Fprintln(command.OutOrStdout(), dir)
				}
				return err
			},
		},
	)
	return parent
}

func execCommand() *cobra.Command {
	node := "n1"
	command := &cobra.Command{
		Use:   "exec -- COMMAND [ARG...]",
		Short: "Run a command inside a node's network namespace",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return cluster.Exec(node, args)
		},
	}
	command.Flags().StringVar(&node, "node", node, "which node, or "+layout.ControlPlane)
	return command
}

func kubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl [ARG...]",
		Short:              "Run kubectl on the cluster",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 && args[0] == "--" {
				args = args[1:]
			}
			return cluster.Kubectl(args)
		},
	}
}

// Package manager is the operator's process: its flags, and the manager that
// runs the reconciler and the webhooks.
package manager

import (
	"flag"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// NewCommand is the `manager` subcommand. It returns an error when a flag cannot be used, when something does not
// start, and when the leader election Lease is lost; the process must then end at once, because another leads.
func NewCommand() *cobra.Command {
	var (
		o      options
		log    zap.Options
		common = flag.NewFlagSet("", flag.ContinueOnError)
	)
	command := &cobra.Command{
		Use:   "manager",
		Short: "Run the operator: reconcile PostgresClusters and serve their admission webhooks",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			logger := zap.New(zap.UseFlagOptions(&log))
			ctrl.SetLogger(logger)
			klog.SetLogger(logger.WithName("client-go"))
			return start(&o)
		},
	}
	log.BindFlags(common)
	config.RegisterFlags(common)
	command.Flags().AddGoFlagSet(common)
	o.addFlags(command.Flags())
	return command
}

func start(o *options) error {
	restConfig, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	// The second signal kills.
	return run(ctrl.SetupSignalHandler(), restConfig, o)
}

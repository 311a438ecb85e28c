// Command provisioner serves the persistent volumes of one node of the local
// cluster. It needs root, and the machine's mount namespace.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/acme/pg-operator/test/cluster/internal/volumes"
)

func main() {
	klog.InitFlags(nil)
	kubeconfig := flag.String("kubeconfig", "", "file with the API server's address and credentials")
	node := flag.String("node", "", "name of the node whose volumes to serve")
	dir := flag.String("dir", "", "directory of the volumes' images and mounts")
	cleanup := flag.Bool("cleanup", false, "unmount everything below --dir, free its loop devices and end; files stay")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *node, *dir, *cleanup); err != nil {
		fmt.Fprintf(os.Stderr, "provisioner: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, node, dir string, cleanup bool) error {
	if dir == "" {
		return fmt.Errorf("--dir is required")
	}
	if cleanup {
		return volumes.Cleanup(ctx, dir)
	}
	if kubeconfig == "" || node == "" {
		return fmt.Errorf("--kubeconfig and --node are required")
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read --kubeconfig: %w", err)
	}
	config.UserAgent = "local-volumes"
	config.QPS, config.Burst = 50, 100
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	disks, err := volumes.NewDisks(dir)
	if err != nil {
		return err
	}
	return volumes.Run(ctx, client, node, disks)
}

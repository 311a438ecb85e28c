// Command image packs a static binary into a container image archive that
// containerd imports, without a container engine.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/acme/pg-operator/test/cluster/internal/images"
)

func main() {
	binary := flag.String("binary", "", "path of the static Linux binary; becomes /pg-operator in the image")
	reference := flag.String("reference", "", "name of the image, for example registry.local/pg-operator:dev")
	output := flag.String("output", "", "path of the archive to write")
	flag.Parse()
	if *binary == "" || *reference == "" || *output == "" {
		fmt.Fprintln(os.Stderr, "image: --binary, --reference and --output are all required")
		flag.Usage()
		os.Exit(2)
	}
	if err := images.FromBinary(*binary, *reference, *output); err != nil {
		fmt.Fprintf(os.Stderr, "image: %v\n", err)
		os.Exit(1)
	}
	fmt.Printf("Wrote %s to %s\n", *reference, *output)
}

package preflight

import (
	"slices"
	"testing"
)

func TestMissingPackages(t *testing.T) {
	for name, tc := range map[string]struct {
		absent []string
		want   []string
	}{
		"nothing":          {},
		"one":              {absent: []string{"conntrack"}, want: []string{"conntrack"}},
		"two of a package": {absent: []string{"containerd", "ctr"}, want: []string{"containerd"}},
		"plug-ins":         {absent: []string{"/usr/lib/cni/bridge", "mkfs.xfs"}, want: []string{"containernetworking-plugins", "xfsprogs"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := missingPackages(func(file string) bool { return !slices.Contains(tc.absent, file) })
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

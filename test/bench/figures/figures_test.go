package figures

import (
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	values := make([]time.Duration, 100)
	for i := range values {
		values[i] = time.Duration(i + 1)
	}
	for _, test := range []struct {
		sorted  []time.Duration
		percent int
		want    time.Duration
	}{
		{values, 50, 50}, {values, 99, 99}, {values[:1], 99, 1}, {values[:1], 50, 1}, {values[:3], 50, 2}, {values[:4], 99, 4},
	} {
		if got := quantile(test.sorted, test.percent); got != test.want {
			t.Errorf("quantile %d of %d values is %d, want %d", test.percent, len(test.sorted), got, test.want)
		}
	}
}

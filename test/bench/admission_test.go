package bench

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/bench/figures"
)

const (
	admissions = 200
	// webhookMetric is the API server's own view: the whole call, connection and TLS included.
	webhookMetric = "apiserver_admission_webhook_admission_duration_seconds"
)

// BenchmarkWebhooks measures admissions by the API server's own metric. Its
// smallest bucket is 5 ms, so the metric is read after each admission: the
// difference of its sum is that admission's exact time.
func BenchmarkWebhooks(b *testing.B) {
	cluster := environment(b)
	namespace := cluster.Namespace(b, "bench")
	clientset, err := kubernetes.NewForConfig(cluster.Config)
	if err != nil {
		b.Fatal(err)
	}
	before := webhookSeconds(b, clientset)
	times := map[string][]time.Duration{}
	for range admissions {
		object := manifest(namespace, "admitted", 1)
		if err := cluster.Client.Create(b.Context(), object, client.DryRunAll); err != nil {
			b.Fatal(err)
		}
		after := webhookSeconds(b, clientset)
		for name, seconds := range after {
			if spent := seconds - before[name]; spent > 0 {
				times[name] = append(times[name], time.Duration(spent*float64(time.Second)))
			}
		}
		before = after
	}
	for name, values := range times {
		figures.Durations("webhook "+name, values)
	}
}

// webhookSeconds is the time that each of our webhooks has taken in all.
func webhookSeconds(b *testing.B, clientset *kubernetes.Clientset) map[string]float64 {
	b.Helper()
	text, err := clientset.RESTClient().Get().AbsPath("/metrics").DoRaw(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	var ours strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, webhookMetric) {
			ours.WriteString(line)
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(ours.String()))
	if err != nil {
		b.Fatal(err)
	}
	seconds := map[string]float64{}
	for _, metric := range families[webhookMetric].GetMetric() {
		var labels []string
		for _, label := range metric.GetLabel() {
			if slices.Contains([]string{"name", "operation", "type"}, label.GetName()) {
				labels = append(labels, label.GetValue())
			}
		}
		if name := strings.Join(labels, " "); strings.Contains(name, v1alpha1.Group) {
			seconds[name] += metric.GetHistogram().GetSampleSum()
		}
	}
	return seconds
}

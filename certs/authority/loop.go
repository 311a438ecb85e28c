package authority

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/certs"
)

// Watched is what certs.NewCache has to hold for this package: the one Secret.
func Watched(namespace string) map[client.Object]cache.ByObject {
	one := cache.Config{FieldSelector: fields.OneTermEqualSelector("metadata.name", certs.SecretAuthority)}
	return map[client.Object]cache.ByObject{&corev1.Secret{}: {Namespaces: map[string]cache.Config{namespace: one}}}
}

// changes gets a value when the Secret or a webhook configuration has changed. Nothing is read from the cache, because
// what it holds may be old.
func changes(ctx context.Context, watched cache.Cache) (<-chan struct{}, error) {
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() },
	}
	for _, object := range append(certs.WebhookKinds(), &corev1.Secret{}) {
		informer, err := watched.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(handler)
		}
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", object, err)
		}
	}
	return changed, nil
}

// loop runs pass at once, after every change and after every interval, sooner after an error, until ctx ends.
func loop(ctx context.Context, o Options, changed <-chan struct{}, log logr.Logger, pass func(context.Context) error) {
	var (
		logged string
		at     time.Time
	)
	for {
		wait := o.interval()
		err := pass(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			wait = o.retry()
			// The same trouble is told once a minute.
			if err.Error() != logged || time.Since(at) > time.Minute {
				log.Error(err, "Failed to keep the certificates of the webhooks", "retryAfter", wait)
				logged, at = err.Error(), time.Now()
			}
		} else {
			logged = ""
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-time.After(wait):
		}
	}
}

package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/acme/pg-operator/apis/naming"
)

// WatchConfig calls changed with the text of the cluster's configuration, now and at each change, until ctx ends. It
// watches one object by name, which is all that an agent may do.
func (c *Client) WatchConfig(ctx context.Context, changed func(text string)) {
	name := fields.OneTermEqualSelector(metav1.ObjectNameField, c.cluster.ConfigMap()).String()
	maps := c.clientset.CoreV1().ConfigMaps(c.pod.Namespace)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = name
			return maps.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = name
			return maps.Watch(ctx, options)
		},
	}
	notify := func(object any) {
		if config, ok := object.(*corev1.ConfigMap); ok {
			changed(config.Data[naming.ConfigMapKey])
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: source,
		ObjectType:    &corev1.ConfigMap{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    notify,
			UpdateFunc: func(_, object any) { notify(object) },
			// A ConfigMap that was deleted leaves the last one in force.
		},
	})
	informer.RunWithContext(ctx)
}

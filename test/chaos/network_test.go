package chaos

import (
	"context"

	"github.com/acme/pg-operator/test/localcluster"
)

func cutAPI(ctx context.Context, b *bed, primary string) (mend, error) {
	node, err := b.node(ctx, primary)
	if err != nil {
		return nil, err
	}
	return b.heal(node), b.cluster.CutNodeFrom(ctx, node, localcluster.FromAPI)
}

// cutAPIOneWay lets the API server's packets through to the primary, and loses the primary's.
func cutAPIOneWay(ctx context.Context, b *bed, primary string) (mend, error) {
	node, err := b.node(ctx, primary)
	if err != nil {
		return nil, err
	}
	return b.heal(node), b.cluster.CutNodeOneWay(ctx, node, localcluster.FromAPI)
}

func cutPeers(ctx context.Context, b *bed, primary string) (mend, error) {
	return b.cutFromPeers(ctx, primary, func(node, peer string) error { return b.cluster.CutNodeFrom(ctx, node, peer) })
}

// cutOut loses what the primary sends to the others; what they send arrives.
func cutOut(ctx context.Context, b *bed, primary string) (mend, error) {
	return b.cutFromPeers(ctx, primary, func(node, peer string) error { return b.cluster.CutNodeOneWay(ctx, node, peer) })
}

// cutIn loses what the others send to the primary; what it sends arrives.
func cutIn(ctx context.Context, b *bed, primary string) (mend, error) {
	return b.cutFromPeers(ctx, primary, func(node, peer string) error { return b.cluster.CutNodeOneWay(ctx, peer, node) })
}

// cutAll unplugs the primary's node: for the others this is the same as the loss of the node.
func cutAll(ctx context.Context, b *bed, primary string) (mend, error) {
	node, err := b.node(ctx, primary)
	if err != nil {
		return nil, err
	}
	return b.heal(node), b.cluster.CutNode(ctx, node)
}

// lossy lets the primary's node lose 30 of a hundred packets, in each direction.
func lossy(ctx context.Context, b *bed, primary string) (mend, error) {
	node, err := b.node(ctx, primary)
	if err != nil {
		return nil, err
	}
	return b.heal(node), b.cluster.LosePackets(ctx, node, 30)
}

// cutFromPeers cuts an instance's node from the nodes of all others, each as cut does.
func (b *bed) cutFromPeers(ctx context.Context, instance string, cut func(node, peer string) error) (mend, error) {
	node, err := b.node(ctx, instance)
	if err != nil {
		return nil, err
	}
	touched := []string{node}
	for _, other := range b.others(instance) {
		peer, err := b.node(ctx, other)
		if err != nil {
			return b.heal(touched...), err
		}
		touched = append(touched, peer)
		if err = cut(node, peer); err != nil {
			return b.heal(touched...), err
		}
	}
	return b.heal(touched...), nil
}

func (b *bed) node(ctx context.Context, instance string) (string, error) {
	pod, err := b.pod(ctx, instance)
	if err != nil {
		return "", err
	}
	return pod.Spec.NodeName, nil
}

// heal undoes what nodes were cut from, or lose.
func (b *bed) heal(nodes ...string) mend {
	return func(ctx context.Context) error {
		for _, node := range nodes {
			if err := b.cluster.HealNode(ctx, node); err != nil {
				return err
			}
		}
		return nil
	}
}

package ssa_test

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/test/world"
)

// childLists are a list of each kind of child.
func childLists() []client.ObjectList { return world.ChildLists() }

func objectsOf(list client.ObjectList) ([]client.Object, error) { return world.Objects(list) }

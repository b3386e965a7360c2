package reads

import "sigs.k8s.io/controller-runtime/pkg/client"

// Source is a source that a spec plays.
type Source = source

// NewList returns an empty list of the declared objects.
var NewList = newList

// Sources returns what a spec can play.
func (s *Set) Sources() []*Source { return s.sources }

// Namespace is that of the objects; empty for all.
func (s *source) Namespace() string { return s.namespace }

// Listed stores these objects, as after a list and the begin of a watch.
func (s *source) Listed(objects ...client.Object) { listed(s, objects...) }

// Update is a change of an object.
func (s *source) Update(o client.Object) { s.update(o) }

// Remove is the removal of an object.
func (s *source) Remove(o client.Object) { s.remove(o) }

package diagnose

// This file defines a right of a program in the terms of RBAC.

import "strings"

// Right is one action that a program must be allowed to take.
type Right struct {
	Group, Resource, Subresource string // Group is empty for the core group
	Verb                         string // in the form of RBAC: get, list, watch, create, update ...
	Namespace                    string // empty for cluster-scoped objects, and for all namespaces
	Name                         string // of the single object; empty for all
}

// String returns the right in the form that error messages use.
func (r Right) String() string {
	text := r.Verb + " " + r.resource()
	if r.Group != "" {
		text += "." + r.Group
	}
	switch {
	case r.Name != "" && r.Namespace != "":
		text += " " + r.Namespace + "/" + r.Name
	case r.Name != "":
		text += " " + r.Name
	case r.Namespace != "":
		text += " in namespace " + r.Namespace
	}
	return text
}

// resource returns the resource in the form that RBAC rules use.
func (r Right) resource() string {
	if r.Subresource != "" {
		return r.Resource + "/" + r.Subresource
	}
	return r.Resource
}

// reviewed returns the right in the form that an authorizer receives.
func (r Right) reviewed() Right {
	if !r.byName() {
		r.Name = ""
	}
	return r
}

// byName reports whether RBAC can grant the right for a single object. The authorizer does not know the name of an
// object that is being created, and a collection has none.
func (r Right) byName() bool {
	return r.Name != "" && r.Verb != "create" && r.Verb != "deletecollection"
}

func sentence(rights []Right) string {
	texts := make([]string, 0, len(rights))
	for _, r := range rights {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, ", ")
}

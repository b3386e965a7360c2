package diagnose

import "strings"

// Right is one action that a program must be allowed to take.
type Right struct {
	Group, Resource, Subresource string // Group is empty for the core group
	Verb                         string // as RBAC says it: get, list, watch, create, update ...
	Namespace                    string // empty for objects of the cluster, and for all namespaces
	Name                         string // of the one object; empty for all
}

// String is the right as an error message names it.
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

// resource is the resource as RBAC rules name it.
func (r Right) resource() string {
	if r.Subresource != "" {
		return r.Resource + "/" + r.Subresource
	}
	return r.Resource
}

// reviewed is the right as an authorizer sees it.
func (r Right) reviewed() Right {
	if !r.byName() {
		r.Name = ""
	}
	return r
}

// byName is true if RBAC can grant the right for one object alone. When an object is created its name is not known
// to the authorizer yet, and a collection has none.
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

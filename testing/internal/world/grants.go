package world

// This file is the rights that manifests.Of grants to the account of a program. A replica asks for nothing else.

import (
	"net/http"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/mapper"
	rbac "code.cloudfoundry.org/eirinix/internal/rights"
	"code.cloudfoundry.org/eirinix/internal/seam"
)

// mayTry are the resources that a diagnosis reads if it may, with any account.
var mayTry = []string{
	"services", "endpoints", "endpointslices", "pods", "namespaces", "customresourcedefinitions", "shops", "mutatingwebhookconfigurations", "validatingwebhookconfigurations",
}

// grantsOf returns the rights of the account of a version; nil where other requests are made, too.
func (w *World) grantsOf(r release, m *eirinix.ExtensionManager) []rbac.Grant {
	if !w.plan.settled("right") || w.plan.audits() {
		return nil // refused objects are read in other ways
	}
	w.mu.Lock()
	known := w.watch.grants[r.name]
	w.mu.Unlock()
	if known != nil {
		return known
	}
	s, err := seam.Of(m)
	var d seam.Deployment
	if err == nil {
		d, err = s.Deployment(mapper.New)
	}
	if err != nil {
		w.violate("the rights of %s are not known: %v", r.name, err)
		return nil
	}
	half := rbac.Whole
	if w.plan.Split {
		half = rbac.Serving
	}
	all := d.Rights.Grants(half, d.Namespace)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watch.grants == nil {
		w.watch.grants = map[string][]rbac.Grant{}
	}
	w.watch.grants[r.name] = all
	return all
}

// entitled sees that a replica may send a request.
func (c *wire) entitled(r *http.Request) {
	if c.granted == nil {
		return
	}
	key := r.Method + " " + r.URL.Path + "?"
	for parameter := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if strings.HasPrefix(parameter, "watch=") || strings.HasPrefix(parameter, "fieldSelector=") {
			key += parameter + "&"
		}
	}
	c.mu.Lock()
	seen := c.asked[key]
	if c.asked == nil {
		c.asked = map[string]bool{}
	}
	c.asked[key] = true
	c.mu.Unlock()
	if seen {
		return
	}
	info, err := requestInfo.NewRequestInfo(r)
	if err != nil || !info.IsResourceRequest || strings.HasPrefix(info.Resource, "selfsubject") || strings.HasSuffix(info.Resource, "reports") {
		return
	}
	reads := info.Verb == "get" || info.Verb == "list"
	switch {
	case reads && slices.Contains(mayTry, info.Resource):
	case info.Verb == "watch" && info.Resource == "customresourcedefinitions" && info.Name == "": // while a step waits for its kind, it follows them if it may
	case c.serves && info.Verb == "watch" && info.Name != "" && strings.HasSuffix(info.Resource, "webhookconfigurations"): // it follows them if it may
	case info.Verb == "delete" && strings.HasSuffix(info.Resource, "webhookconfigurations"): // a person calls Unregister
	case c.serves && info.Resource == "secrets": // some serving halves here make the Secret
	case c.serves && info.Resource == "configmaps" && info.Verb == "create": // a diagnosis tries to have the API server call
	case !slices.ContainsFunc(c.granted, func(g rbac.Grant) bool { return allows(g, info) }):
		c.w.violate("%s asks to %s %s %q, for which manifests.Of grants no right", c.host.name, info.Verb, info.Resource, strings.TrimPrefix(info.Namespace+"/"+info.Name, "/"))
	}
}

// allows reports whether a grant is for a request.
func allows(g rbac.Grant, asks *request.RequestInfo) bool {
	if g.Namespace != "" && g.Namespace != asks.Namespace {
		return false
	}
	holds := func(all []string, one string) bool { return slices.Contains(all, "*") || slices.Contains(all, one) }
	resource, name := asks.Resource, asks.Name
	if asks.Subresource != "" {
		resource += "/" + asks.Subresource
	}
	if asks.Verb == "create" {
		name = "" // an authorizer does not know it
	}
	return slices.ContainsFunc(g.Rules, func(rule rbacv1.PolicyRule) bool {
		return holds(rule.Verbs, asks.Verb) && holds(rule.APIGroups, asks.APIGroup) && holds(rule.Resources, resource) &&
			(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, name))
	})
}

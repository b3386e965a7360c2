package diagnose

// This file names the objects that cannot be deleted while this program does not answer.

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// checkHolding reports the webhooks that hold objects back while no call comes through. Of those that the program registers,
// these are the ones with a step for DELETE or for every update, and the conversion webhooks.
func (d *diagnostic) checkHolding() {
	if d.through || (diagnosis.Report{Findings: d.findings}).Err() == nil {
		return
	}
	holding := map[string][]string{} // by configuration
	for _, h := range d.live {
		if why := h.holds(); why != "" {
			holding[h.configuration.String()] = append(holding[h.configuration.String()], fmt.Sprintf("%s %s", h.Name, why))
		}
	}
	for _, name := range d.converting {
		crd := configuration{webhookconf.CRD, name}.String()
		holding[crd] = append(holding[crd], "objects that are stored in another version than the requested one can neither be read nor changed")
	}
	for _, object := range slices.Sorted(maps.Keys(holding)) {
		d.add(warning(diagnosis.HoldsObjects, object,
			fmt.Sprintf("while this program does not answer, %s keeps objects, and namespaces with such objects, from being deleted: %s", object, listed(holding[object])),
			"let the program answer; only if it is gone for good, "+gone(object)))
	}
}

// gone says how to let go what a program has left behind.
func gone(object string) string {
	if strings.HasPrefix(object, webhookconf.CRD.Name+" ") {
		return "set spec.conversion.strategy to None, if all stored objects have one version"
	}
	return "call its Unregister"
}

// holds says which deletions fail while the webhook does not answer, or "".
func (h hook) holds() string {
	operations := []string{}
	for _, r := range h.Rules {
		for _, o := range r.Operations {
			operations = append(operations, string(o))
		}
	}
	asks := func(o admissionregistrationv1.OperationType) bool {
		return slices.Contains(operations, string(o)) || slices.Contains(operations, string(admissionregistrationv1.OperationAll))
	}
	switch {
	case h.ignores():
	case asks(admissionregistrationv1.Delete):
		return "is called for DELETE"
	case asks(admissionregistrationv1.Update) && !webhookconf.LetsDyingGo(h.MatchConditions):
		return "is called when a finalizer is removed (Settings.EveryUpdate)"
	}
	return ""
}

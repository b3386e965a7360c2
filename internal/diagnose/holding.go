package diagnose

// This file names the objects that cannot be deleted while this program does not answer.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

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
	held := map[configuration][]string{}
	for _, h := range d.live {
		switch {
		case h.ignores():
		case slices.ContainsFunc(h.Rules, isForDelete):
			held[h.configuration] = append(held[h.configuration], h.Name+" is called for DELETE")
		case webhookconf.HoldsDying(h.MutatingWebhook):
			held[h.configuration] = append(held[h.configuration], h.Name+" is called when a finalizer is removed (Settings.EveryUpdate)")
		}
	}
	for _, name := range d.converting {
		held[configuration{webhookconf.CRD, name}] = []string{"objects that are stored in another version than the requested one can neither be read nor changed"}
	}
	for _, by := range slices.SortedFunc(maps.Keys(held), func(a, b configuration) int { return cmp.Compare(a.String(), b.String()) }) {
		remedy := "call its Unregister"
		if by.kind == webhookconf.CRD {
			remedy = "set spec.conversion.strategy to None, if all stored objects have one version"
		}
		d.add(warning(diagnosis.HoldsObjects, by.String(),
			fmt.Sprintf("while this program does not answer, %s keeps objects, and namespaces with such objects, from being deleted: %s", by, listed(held[by])),
			"let the program answer; only if it is gone for good, "+remedy))
	}
}

func isForDelete(r admissionregistrationv1.RuleWithOperations) bool {
	return slices.Contains(r.Operations, admissionregistrationv1.Delete) || slices.Contains(r.Operations, admissionregistrationv1.OperationAll)
}

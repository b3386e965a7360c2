package world

// This file is what others have left in a cluster, and a diagnosis finds: webhooks of other programs, and an annotation on an object of
// this one.

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/diagnosis"
)

// leftBehind are the findings about neighbours.
var leftBehind = []diagnosis.Code{diagnosis.Orphaned, diagnosis.Shadowed, diagnosis.TimeoutsAddUp, diagnosis.OtherInjector}

// neighbours has others leave something in the cluster, and a person diagnose the program: each of these has a finding. Nothing calls
// these webhooks.
func (w *World) neighbours() {
	w.mu.Lock()
	standing := w.history[configurations[1]].last()
	all := webhooksOf(standing)
	w.mu.Unlock()
	if len(all) == 0 || w.plan.Seed%4 != 0 { // a diagnosis takes some time
		return
	}
	if err := w.leavesBehind(all[0].ClientConfig); err != nil {
		w.violate("nothing can be left in the cluster: %v", err)
		return
	}
	marked := standing.DeepCopy()
	annotations := marked.GetAnnotations()
	annotations["cert-manager.io/inject-ca-from"] = "shop/other"
	marked.SetAnnotations(annotations)
	if err := w.api.Put(marked); err != nil {
		w.violate("an annotation cannot be written: %v", err)
	}
	w.observe()
	w.tool("diagnoses "+w.wanted.name+" beside other programs", w.wanted, w.stream("neighbours", 0), func(ctx context.Context, m *eirinix.ExtensionManager) error {
		report := m.Diagnose(ctx)
		for _, code := range leftBehind {
			if _, found := report.Find(code); !found {
				w.violate("at rest, a diagnosis does not find %s: %s", code, report)
			}
		}
		if _, well := report.Find(diagnosis.Healthy); well {
			w.violate("at rest, a diagnosis says that all is well, beside problems: %s", report)
		}
		return nil
	})
}

// leavesBehind makes a configuration that calls this program under another fingerprint, one of a program that is gone, and one of a program
// whose webhooks have a long time.
func (w *World) leavesBehind(ours admissionregistrationv1.WebhookClientConfig) error {
	none, ignore, fail := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Ignore, admissionregistrationv1.Fail
	about := func(resource string) []admissionregistrationv1.RuleWithOperations {
		return []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}},
		}}
	}
	orphan := ours.DeepCopy()
	if orphan.Service != nil {
		orphan.Service.Path = new("/mutate/before")
	} else {
		orphan.URL = new(fmt.Sprintf("https://%s:443/mutate/before", urlHost))
	}
	gone := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "shop", Name: "gone"}}
	hooks := map[string][]admissionregistrationv1.MutatingWebhook{
		"before-mutating-hook": {{Name: "before.example.com", ClientConfig: *orphan, Rules: about("nodes"), FailurePolicy: &ignore}},
		"gone":                 {{Name: "gone.example.com", ClientConfig: gone, Rules: about("pods"), FailurePolicy: &fail}},
		"slow":                 {},
	}
	for n := range 2 {
		hooks["slow"] = append(hooks["slow"], admissionregistrationv1.MutatingWebhook{
			Name: fmt.Sprintf("slow%d.example.com", n), ClientConfig: gone, Rules: about("pods"), FailurePolicy: &ignore, TimeoutSeconds: new(int32(20)),
		})
	}
	for name, all := range hooks {
		for i := range all {
			all[i].SideEffects, all[i].AdmissionReviewVersions = &none, []string{"v1"}
		}
		if err := w.api.Put(&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: all}); err != nil {
			return err
		}
	}
	return nil
}

package world

// This file is programs whose settings are wrong in some places. Validate names all of them, each with the setting.

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
)

// misuse is a wrong setting, and the word for it in the error.
type misuse struct {
	word   string
	option func(*eirinix.ManagerOptions)
	step   func(*eirinix.Settings)
}

// badSelector has an operator that there is not.
var badSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}

var misuses = []misuse{
	{word: "Settings.FailurePolicy", step: func(s *eirinix.Settings) { s.FailurePolicy = "Warn" }},
	{word: "Settings.MatchPolicy", step: func(s *eirinix.Settings) { s.MatchPolicy = "Similar" }},
	{word: "Settings.SideEffects", step: func(s *eirinix.Settings) { s.SideEffects = admissionregistrationv1.SideEffectClassSome }},
	{word: "Settings.Mode", step: func(s *eirinix.Settings) { s.Mode = "Adit" }},
	{word: "Settings.Owned", step: func(s *eirinix.Settings) { s.Owned = "Never" }},
	{word: "Settings.Reinvoke", step: func(s *eirinix.Settings) { s.Reinvoke = "Always" }},
	{word: "Settings.Timeout", step: func(s *eirinix.Settings) { s.Timeout = 31 * time.Second }},
	{word: "Settings.Timeout", step: func(s *eirinix.Settings) { s.Timeout = 1500 * time.Millisecond }},
	{word: "Settings.Namespaces", step: func(s *eirinix.Settings) { s.Namespaces = badSelector }},
	{word: "Settings.Objects", step: func(s *eirinix.Settings) { s.Objects = badSelector }},
	{word: "Settings.Conditions", step: func(s *eirinix.Settings) {
		s.Conditions = []admissionregistrationv1.MatchCondition{{Name: "a b", Expression: "true"}}
	}},
	{word: "ManagerOptions.FailurePolicy", option: func(o *eirinix.ManagerOptions) {
		o.FailurePolicy = new(admissionregistrationv1.FailurePolicyType("Warn"))
	}},
	{word: "ManagerOptions.Port", option: func(o *eirinix.ManagerOptions) { o.Port = 65536 }},
	{word: "ManagerOptions.ListenAddress", option: func(o *eirinix.ManagerOptions) { o.ListenAddress = "everywhere" }},
	{word: "ManagerOptions.KeyAlgorithm", option: func(o *eirinix.ManagerOptions) { o.KeyAlgorithm = "DSA" }},
	{word: "ManagerOptions.CALifetime", option: func(o *eirinix.ManagerOptions) { o.CALifetime = time.Minute }},
	{word: "ManagerOptions.ModesConfigMap", option: func(o *eirinix.ManagerOptions) { o.ModesConfigMap = "The modes" }},
	{word: "ManagerOptions.ClientCA.Names", option: func(o *eirinix.ManagerOptions) { o.ClientCA.Names = []string{callerName} }},
	{word: "ManagerOptions.Certificates", option: func(o *eirinix.ManagerOptions) {
		o.Certificates = eirinix.FromCSR(signerName, eirinix.SignerOptions{})
	}},
}

// misuses has programs with some wrong settings, with each of them alone, and without, validate these.
func (w *World) misuses(rng *rand.Rand) {
	all := [][]int{nil, rng.Perm(len(misuses))[:2], rng.Perm(len(misuses))[:3]}
	for i := range misuses {
		all = append(all, []int{i})
	}
	for _, wrong := range all {
		o := eirinix.ManagerOptions{ServiceName: serviceName, WebhookNamespace: namespace, OperatorFingerprint: fingerprint}
		var s eirinix.Settings
		set := map[string]bool{} // each of them once
		for _, i := range wrong {
			if m := misuses[i]; !set[m.word] {
				set[m.word] = true
				if m.option != nil {
					m.option(&o)
				} else {
					m.step(&s)
				}
			}
		}
		m := eirinix.NewManager(o)
		text := ""
		if err := m.AddExtension(eirinix.Mutation[*corev1.Pod]{ID: "a", Settings: s, Apply: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil }}); err != nil {
			text = err.Error()
		}
		if err := m.Validate(); err != nil {
			text += err.Error()
		}
		for word := range set {
			if !strings.Contains(text, word) {
				w.violate("%s is wrong, and Validate does not say so: %q", word, text)
			}
		}
		if len(set) == 0 && text != "" {
			w.violate("no setting is wrong, and Validate says: %s", text)
		}
	}
}

package world

// This file is programs with mistakes in their options and steps. Each operation tells of all of them, before it asks an API server.

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
)

// wrong is the name of a step with a mistake.
const wrong = "wrong"

// mistakesInOptions are by the name of the option.
var mistakesInOptions = map[string]func(*eirinix.ManagerOptions){
	"FailurePolicy": func(o *eirinix.ManagerOptions) {
		o.FailurePolicy = new(admissionregistrationv1.FailurePolicyType("Perhaps"))
	},
	"Host":                func(o *eirinix.ManagerOptions) { o.Host = "https://" + urlHost },
	"Port":                func(o *eirinix.ManagerOptions) { o.Port = 70_000 },
	"ListenAddress":       func(o *eirinix.ManagerOptions) { o.ListenAddress = "here" },
	"MaxRequestBytes":     func(o *eirinix.ManagerOptions) { o.MaxRequestBytes = -1 },
	"CALifetime":          func(o *eirinix.ManagerOptions) { o.CALifetime = time.Minute },
	"ModesConfigMap":      func(o *eirinix.ManagerOptions) { o.ModesConfigMap = "Modes_" },
	"OperatorFingerprint": func(o *eirinix.ManagerOptions) { o.OperatorFingerprint = "Eirini_X" },
	"Namespace":           func(o *eirinix.ManagerOptions) { o.Namespace = "Shop_" },
	"Domain":              func(o *eirinix.ManagerOptions) { o.Domain = "example_com" },
	"KeyAlgorithm":        func(o *eirinix.ManagerOptions) { o.KeyAlgorithm = "DES" },
	"KubeConfig":          func(o *eirinix.ManagerOptions) { o.KubeConfig = "/no/file" },
	"ClientCA":            func(o *eirinix.ManagerOptions) { o.ClientCA = eirinix.ClientCA{Names: []string{"the API server"}} },
	"Certificates":        func(o *eirinix.ManagerOptions) { o.Certificates = eirinix.FromCSR(signerName, eirinix.SignerOptions{}) },
	"TLS":                 func(o *eirinix.ManagerOptions) { o.TLS = func(c *tls.Config) { c.MinVersion = tls.VersionTLS11 } }, //nolint:gosec // it is a mistake
}

// mistakesInSettings are of a step that changes pods.
var mistakesInSettings = map[string]eirinix.Settings{
	"a long Timeout":              {Timeout: 31 * time.Second},
	"a Timeout of 1.5 s":          {Timeout: 1500 * time.Millisecond},
	"a negative Timeout":          {Timeout: -time.Second},
	"an unknown FailurePolicy":    {FailurePolicy: "Perhaps"},
	"an unknown MatchPolicy":      {MatchPolicy: "Perhaps"},
	"unknown SideEffects":         {SideEffects: "Perhaps"},
	"SideEffects in a dry run":    {SideEffects: admissionregistrationv1.SideEffectClassSome},
	"an unknown Reinvoke":         {Reinvoke: "Perhaps"},
	"an unknown Mode":             {Mode: "Perhaps"},
	"an unknown OwnedPolicy":      {Owned: "Perhaps"},
	"DELETE":                      {Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete}},
	"CONNECT":                     {Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Connect}},
	"an unknown operation":        {Operations: []admissionregistrationv1.OperationType{"PATCH"}},
	"Operations beside Rules":     {Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create}, Rules: boxStep{Settings: eirinix.Settings{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create}}}.rules()},
	"Namespaces without values":   {Namespaces: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: teamLabel, Operator: metav1.LabelSelectorOpIn}}}},
	"Objects with a bad key":      {Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}},
	"a namespace of the cluster":  {Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: system}}},
	"two Conditions of one name":  {Conditions: []admissionregistrationv1.MatchCondition{{Name: "one", Expression: "true"}, {Name: "one", Expression: "true"}}},
	"an empty Condition":          {Conditions: []admissionregistrationv1.MatchCondition{{Name: "one"}}},
	"a MaxStale of 30 s":          {Reads: []eirinix.Read{{Object: &corev1.ConfigMap{}, MaxStale: 30 * time.Second}}},
	"a Read of nothing":           {Reads: []eirinix.Read{{}}},
	"a Read of a bad namespace":   {Reads: []eirinix.Read{{Object: &corev1.ConfigMap{}, Namespaces: []string{"Shop_"}}}},
	"a Read of a namespace twice": {Reads: []eirinix.Read{{Object: &corev1.ConfigMap{}, Namespaces: []string{"shop", "shop"}}}},
	"an Index without a function": {Reads: []eirinix.Read{{Object: &corev1.ConfigMap{}, Index: map[string]client.IndexerFunc{floorLabel: nil}}}},
}

// mistakesInSteps are of other steps.
var mistakesInSteps = map[string]any{
	"no Apply":    eirinix.Mutation[*corev1.Pod]{ID: wrong},
	"no callback": eirinix.Validation[*corev1.Pod]{ID: wrong},
	"no Rules":    eirinix.Mutation[*unstructured.Unstructured]{ID: wrong, Apply: nothingTo[*unstructured.Unstructured]},
	"everything, with Fail": eirinix.Mutation[*unstructured.Unstructured]{ID: wrong, Apply: nothingTo[*unstructured.Unstructured], Settings: eirinix.Settings{Rules: []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create}, Rule: admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
	}}}},
	"a misspelt subresource": eirinix.Subresource[*corev1.PodExecOptions]{ID: wrong, Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "exce", Check: says[*corev1.PodExecOptions]},
	"another operation of a subresource": eirinix.Subresource[*corev1.PodExecOptions]{
		ID: wrong, Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "exec", Check: says[*corev1.PodExecOptions],
		Settings: eirinix.Settings{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create}},
	},
	"another type of a subresource": eirinix.Subresource[*corev1.Pod]{ID: wrong, Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "exec", Check: says[*corev1.Pod]},
	"no resource of a subresource":  eirinix.Subresource[*corev1.Pod]{ID: wrong, Subresource: "exec", Check: says[*corev1.Pod]},
	"a pointer to nothing":          (*boxExtension)(nil),
	"no extension":                  42,
}

func nothingTo[T client.Object](context.Context, *eirinix.Call, T) error { return nil }

func says[T any](context.Context, *eirinix.Call, T, T) error { return nil }

// mistakes has a tool that may have mistakes check itself, and register and run if it has some. Errors name each wrong option, each
// step with a mistake, and each setting that is wrong in it.
func (w *World) mistakes() {
	rng := w.stream("mistakes", 0)
	h := newHost("a program with mistakes")
	c := w.newWire(h, rng)
	var made, words []string
	m := w.newManager(h, c, "a program with mistakes", "10.2.0.3:"+port, release{}, func(o *eirinix.ManagerOptions) {
		for range rng.IntN(3) {
			option := oneOf(rng, mistakesInOptions)
			mistakesInOptions[option](o)
			made, words = append(made, option), append(words, "ManagerOptions."+option)
		}
	})
	add := func(of string, step any, says ...string) {
		if err := m.AddExtension(step); err != nil {
			w.tell(named("a program with mistakes"), "hears at once: %v", err)
		}
		made, words = append(made, of), append(words, says...)
	}
	for i := range rng.IntN(3) {
		if rng.IntN(3) == 0 {
			of := oneOf(rng, mistakesInSteps)
			add(of, mistakesInSteps[of])
			break
		}
		of, name := oneOf(rng, mistakesInSettings), fmt.Sprint(wrong, i)
		add(of, eirinix.Mutation[*corev1.Pod]{ID: name, Settings: mistakesInSettings[of], Apply: nothingTo[*corev1.Pod]}, append(fieldsOf(mistakesInSettings[of]), strconv.Quote(name))...)
	}
	if len(made) == 0 {
		add("", eirinix.Mutation[*corev1.Pod]{ID: "right", Apply: nothingTo[*corev1.Pod]})
		if err := m.Validate(); err != nil {
			w.violate("a program without a mistake has one: %v", err)
		}
		m.Stop()
		return
	}
	w.tell(named("a program with mistakes"), "has %s", strings.Join(made, ", "))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for what, err := range map[string]error{"Validate": m.Validate(), "RegisterExtensions": m.RegisterExtensions(), "Run": m.Run(ctx)} {
		if err == nil {
			w.violate("%s finds no mistake in a program that has %s", what, strings.Join(made, ", "))
			continue
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				w.violate("%s does not tell of %s in a program that has %s: %v", what, word, strings.Join(made, ", "), err)
			}
		}
	}
	if n := c.count(); n > 0 {
		w.violate("a program that has %s makes %d requests", strings.Join(made, ", "), n)
	}
	m.Stop()
}

// fieldsOf returns the names of the settings that are there.
func fieldsOf(s eirinix.Settings) []string {
	var names []string
	for i, v := 0, reflect.ValueOf(s); i < v.NumField(); i++ {
		if !v.Field(i).IsZero() {
			names = append(names, "Settings."+v.Type().Field(i).Name)
		}
	}
	return names
}

// oneOf draws one of the names in a map.
func oneOf[T any](rng *rand.Rand, of map[string]T) string {
	names := slices.Sorted(maps.Keys(of))
	return names[rng.IntN(len(names))]
}

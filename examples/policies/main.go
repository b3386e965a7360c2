// Policies implements two rules as a webhook that do not need one: mutating.yaml and validating.yaml express them in
// CEL. docs/policies.md explains when to use which.
package main

import (
	"context"
	"log"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/examples/cli"
)

const registry = "registry.example.org/"

func main() {
	log.SetFlags(0)
	x := eirinix.NewManager(cli.Options("policies-example"))
	guarded := eirinix.Settings{Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{"example.org/guarded": "true"}}}
	onCreate := guarded
	onCreate.Rules = []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}}
	for _, step := range []any{
		eirinix.Mutation[*corev1.Pod]{ID: "no-token", Settings: onCreate, Apply: withholdToken},
		eirinix.Validation[*corev1.Pod]{
			ID: "own-images", Settings: guarded, Rule: checkImages,
		},
	} {
		if err := x.AddExtension(step); err != nil {
			log.Fatal(err)
		}
	}
	if err := cli.Run(x); err != nil {
		log.Fatal(err)
	}
}

func withholdToken(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
	if pod.Spec.AutomountServiceAccountToken == nil {
		pod.Spec.AutomountServiceAccountToken = new(false)
	}
	return nil
}

func checkImages(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
	var foreign []string
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for _, c := range containers {
			if !strings.HasPrefix(c.Image, registry) {
				foreign = append(foreign, c.Image)
			}
		}
	}
	if len(foreign) > 0 {
		return eirinix.Deny("images from elsewhere: %s", strings.Join(foreign, ", "))
	}
	return nil
}

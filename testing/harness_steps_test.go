package eirinixtest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"code.cloudfoundry.org/eirinix"
)

// addWorkers adds the steps that change objects.
func addWorkers(w *bothWorlds) {
	w.add(eirinix.Mutation[*corev1.Pod]{
		ID:       "sidecar",
		Settings: eirinix.Settings{Objects: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "skip", Operator: metav1.LabelSelectorOpDoesNotExist}}}},
		Apply: func(_ context.Context, c *eirinix.Call, pod *corev1.Pod) error {
			if c.Operation != "CREATE" {
				return nil
			}
			c.Warn("a sidecar is added to %q", pod.Name)
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "sidecar", Image: "sidecar:1"})
			return nil
		},
	})
	w.add(envExtension{})
	w.add(handlerOf{handler{func(context.Context, eirinix.Manager, *corev1.Pod, admission.Request) admission.Response {
		return admission.Response{Patches: []jsonpatch.JsonPatchOperation{{Operation: "remove", Path: "/spec/not/there"}}, AdmissionResponse: admissionv1.AdmissionResponse{Allowed: true}}
	}}, eirinix.Settings{Objects: selector("patch", "bad")}})
	w.add(eirinix.Mutation[*corev1.ConfigMap]{
		ID: "talker", Settings: eirinix.Settings{SideEffects: "NoneOnDryRun"},
		Apply: func(_ context.Context, c *eirinix.Call, m *corev1.ConfigMap) error {
			switch m.Data["say"] {
			case "warn":
				c.Warn("first")
				c.Warn("second")
				c.Warn("first")
			case "lots":
				for i := range 40 {
					c.Warn("%d %s", i, strings.Repeat("long ", 60))
				}
			case "user":
				slices.Sort(c.UserInfo.Groups)
				m.Data["user"] = c.UserInfo.Username + " of " + strings.Join(c.UserInfo.Groups, ",")
			case "dry-run":
				m.Data["dry-run"] = fmt.Sprint(*c.DryRun)
			case "move":
				m.Namespace = plain
			}
			return nil
		},
	})
	w.add(eirinix.Mutation[*rbacv1.ClusterRole]{
		ID: "roles",
		Settings: eirinix.Settings{Objects: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "kubernetes.io/bootstrapping", Operator: metav1.LabelSelectorOpDoesNotExist},
		}}},
		Apply: func(_ context.Context, _ *eirinix.Call, r *rbacv1.ClusterRole) error {
			metav1.SetMetaDataAnnotation(&r.ObjectMeta, "seen", "yes")
			return nil
		},
	})
	w.add(eirinix.Mutation[*unstructured.Unstructured]{
		ID:       "gadgets",
		Settings: eirinix.Settings{Rules: rulesFor("example.org", "v1", "gadgets")},
		Apply: func(_ context.Context, c *eirinix.Call, u *unstructured.Unstructured) error {
			return unstructured.SetNestedField(u.Object, "seen as "+u.GetAPIVersion()+", sent as "+c.RequestKind.Version, "spec", "note")
		},
	})
}

// addJudges adds the steps that refuse and fail.
func addJudges(w *bothWorlds) {
	judge := func(id string, settings eirinix.Settings, verdict func(context.Context, *corev1.ConfigMap) error) {
		settings.Namespaces = nil
		w.add(eirinix.Validation[*corev1.ConfigMap]{ID: id, Settings: settings, Create: func(ctx context.Context, _ *eirinix.Call, m *corev1.ConfigMap) error {
			return verdict(ctx, m)
		}})
	}
	judge("judge", eirinix.Settings{}, func(_ context.Context, m *corev1.ConfigMap) error {
		switch m.Data["verdict"] {
		case "deny":
			return eirinix.Deny("%s is not wanted here", m.Name)
		case "invalid":
			return invalidField()
		case "conflict":
			return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, m.Name, fmt.Errorf("another client was faster"))
		case "fail":
			return fmt.Errorf("the database is away")
		}
		return nil
	})
	judge("lenient", eirinix.Settings{FailurePolicy: "Ignore", Isolated: true}, func(_ context.Context, m *corev1.ConfigMap) error {
		if m.Data["verdict"] == "fail-ignored" {
			return fmt.Errorf("the database is away")
		}
		return nil
	})
	// It is called for its own objects alone: on a busy machine everything may take too long.
	called := conditions("has(object.data) && 'verdict' in object.data && object.data['verdict'] == 'slow'")
	judge("slow", eirinix.Settings{Timeout: 2 * time.Second, Isolated: true, Conditions: called}, func(ctx context.Context, _ *corev1.ConfigMap) error {
		<-ctx.Done()
		return ctx.Err()
	})
	judge("conditional", eirinix.Settings{Conditions: conditions("object.metadata.name != 'skip-condition' && object.metadata.name.startsWith('skip')")},
		func(context.Context, *corev1.ConfigMap) error { return eirinix.Deny("the condition was true") })
	judge("rights", eirinix.Settings{Conditions: conditions("has(object.data) && 'rights' in object.data && authorizer.group('').resource('secrets').namespace(request.namespace).check('get').allowed()")},
		func(context.Context, *corev1.ConfigMap) error { return eirinix.Deny("the user may read secrets") })
	judge("suspicious", eirinix.Settings{Conditions: conditions("'suspects' in request.userInfo.groups")},
		func(context.Context, *corev1.ConfigMap) error { return eirinix.Deny("a suspect") })
	judge("breakable", eirinix.Settings{Conditions: conditions(
		"has(object.data) && 'conditions' in object.data && object.data['missing'] == ''")},
		func(context.Context, *corev1.ConfigMap) error { return eirinix.Deny("the condition was true") })
	w.add(eirinix.Validation[*corev1.ConfigMap]{
		ID: "keeper",
		Update: func(_ context.Context, _ *eirinix.Call, oldObj, newObj *corev1.ConfigMap) error {
			if v := oldObj.Data["version"]; v != newObj.Data["version"] {
				return eirinix.Deny("version is %s and stays so", v)
			}
			return nil
		},
		Delete: func(_ context.Context, _ *eirinix.Call, m *corev1.ConfigMap) error {
			if m.Name == "keep-me" {
				return eirinix.Deny("%s stays", m.Name)
			}
			return nil
		},
	})
	w.add(eirinix.Validation[*corev1.Pod]{ID: "names", Create: func(_ context.Context, c *eirinix.Call, pod *corev1.Pod) error {
		if pod.GenerateName != "" && !strings.HasPrefix(pod.Name, pod.GenerateName) {
			return eirinix.Deny("a validating webhook knows the name by now")
		}
		if pod.UID == "" || pod.CreationTimestamp.IsZero() {
			return eirinix.Deny("a validating webhook knows UID and time by now")
		}
		return nil
	}})
	w.add(eirinix.Subresource[*autoscalingv1.Scale]{
		ID: "scale", Resource: appsv1.SchemeGroupVersion.WithResource("deployments"), Subresource: "scale", Settings: eirinix.Settings{Operations: ops("UPDATE")},
		Check: func(_ context.Context, c *eirinix.Call, oldObj, newObj *autoscalingv1.Scale) error {
			if newObj.Spec.Replicas > 10 {
				return eirinix.Deny("%s from %d to %d replicas is too much", c.Name, oldObj.Spec.Replicas, newObj.Spec.Replicas)
			}
			return nil
		},
	})
	w.add(eirinix.Subresource[*policyv1.Eviction]{
		ID: "eviction", Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "eviction", Settings: eirinix.Settings{Operations: ops("CREATE")},
		Check: func(_ context.Context, c *eirinix.Call, _, newObj *policyv1.Eviction) error {
			if newObj.Name == "pinned" {
				return eirinix.Deny("%s stays where it is", c.Name)
			}
			return nil
		},
	})
	w.add(eirinix.Subresource[*corev1.PodExecOptions]{
		ID: "exec", Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "exec", Settings: eirinix.Settings{Operations: ops("CONNECT")},
		Check: func(_ context.Context, c *eirinix.Call, _, newObj *corev1.PodExecOptions) error {
			return eirinix.Deny("no %s in %s of %s", newObj.Command, newObj.Container, c.Name)
		},
	})
}

// addWitnesses adds steps that report the received parts of Secrets with the label witness: the metadata that the API
// server sets, and the text.
func addWitnesses(w *bothWorlds) {
	settings := eirinix.Settings{Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"witness": "yes"}}}
	tell := func(c *eirinix.Call, step string, s *corev1.Secret) {
		c.Warn("%s sees uid %t, created %t, generation %d, %d data, %d texts, %s", step, s.UID != "", !s.CreationTimestamp.IsZero(), s.Generation, len(s.Data), len(s.StringData), s.Data["b"])
	}
	w.add(eirinix.Mutation[*corev1.Secret]{ID: "secret-mutation", Settings: settings, Apply: func(_ context.Context, c *eirinix.Call, s *corev1.Secret) error {
		tell(c, "mutation", s)
		return nil
	}})
	seen := func(_ context.Context, c *eirinix.Call, s *corev1.Secret) error {
		tell(c, "validation", s)
		return nil
	}
	w.add(eirinix.Validation[*corev1.Secret]{
		ID: "secret-validation", Settings: settings, Create: seen,
		Update: func(ctx context.Context, c *eirinix.Call, _, s *corev1.Secret) error { return seen(ctx, c, s) },
	})
}

// addSubresourceWitnesses adds steps that report updates of subresources: a Mutation warns of the object that it sees, and a
// Subresource refuses with the one that it sees.
func addSubresourceWitnesses(w *bothWorlds) {
	settings := eirinix.Settings{Objects: selector("witness", "yes")}
	witness := func(resource schema.GroupVersionResource, subresource string, operation admissionregistrationv1.OperationType) {
		w.add(eirinix.Subresource[*unstructured.Unstructured]{
			Resource: resource, Subresource: subresource, Settings: eirinix.Settings{Operations: ops(operation), Objects: settings.Objects},
			Check: func(_ context.Context, _ *eirinix.Call, _, newObj *unstructured.Unstructured) error {
				newObj.SetManagedFields(nil) // the harness keeps none
				if operation == "CREATE" {   // no two have these in common
					for _, field := range []string{"uid", "creationTimestamp"} {
						if _, ok, _ := unstructured.NestedString(newObj.Object, "metadata", field); ok {
							_ = unstructured.SetNestedField(newObj.Object, "set", "metadata", field)
						}
					}
				}
				text, err := yaml.Marshal(newObj.Object)
				if err != nil {
					return err
				}
				return eirinix.Deny("%s", text)
			},
		})
		settings := settings
		settings.Rules = rulesFor(resource.Group, resource.Version, resource.Resource+"/"+subresource)
		settings.Rules[0].Operations = ops(operation)
		w.add(eirinix.Mutation[*unstructured.Unstructured]{
			ID: "sees-" + resource.Resource + "-" + subresource, Settings: settings,
			Apply: func(_ context.Context, c *eirinix.Call, obj *unstructured.Unstructured) error {
				spec, err := yaml.Marshal(obj.Object["spec"])
				c.Warn("%q in %q, %v, %v, %d bytes of spec", obj.GetName(), obj.GetNamespace(), obj.GetLabels(), obj.GetAnnotations(), len(spec))
				return err
			},
		})
	}
	for _, resource := range []schema.GroupVersionResource{
		corev1.SchemeGroupVersion.WithResource("pods"),
		corev1.SchemeGroupVersion.WithResource("services"),
		appsv1.SchemeGroupVersion.WithResource("deployments"),
		networkingv1.SchemeGroupVersion.WithResource("servicecidrs"),
		gadgetKind("v1").GroupVersion().WithResource("gadgets"),
	} {
		witness(resource, "status", "UPDATE")
	}
	witness(corev1.SchemeGroupVersion.WithResource("pods"), "ephemeralcontainers", "UPDATE")
	witness(corev1.SchemeGroupVersion.WithResource("serviceaccounts"), "token", "CREATE")
}

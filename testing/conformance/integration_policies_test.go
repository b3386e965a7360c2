package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
)

var _ = Describe("S34 The matrices of Kubernetes' unit tests", Label("S34"), func() {
	const fail, ignore = admissionregistrationv1.Fail, admissionregistrationv1.Ignore
	const create, remove = admissionregistrationv1.Create, admissionregistrationv1.Delete

	var (
		namespace string
		calls     *callLog
	)
	BeforeEach(func(ctx SpecContext) { namespace, calls = newNamespace(ctx), &callLog{} })

	DescribeTable("refuse sideEffects that forbid dry runs, as the API server does",
		func(ctx SpecContext, class admissionregistrationv1.SideEffectClass) {
			m := eirinix.NewManager(optionsFor(ctx, urlMode, namespace))
			Expect(m.AddExtension(labelOnce("careless", "a", "b", eirinix.Settings{SideEffects: class}))).To(Succeed())
			Expect(m.Validate()).To(MatchError(And(ContainSubstring(`"careless"`), ContainSubstring("Settings.SideEffects"),
				ContainSubstring(`Unsupported value: "`+string(class)+`": supported values: "None", "NoneOnDryRun"`))))

			served := serve(ctx, urlMode, namespace, nil, labelOnce("careful", "a", "b", eirinix.Settings{}))
			edited := mutatingConfiguration(ctx, served)
			edited.Webhooks[0].SideEffects = &class
			_, err := clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, edited, metav1.UpdateOptions{})
			Expect(err).To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring(`supported values: "None", "NoneOnDryRun"`))))
		},
		Entry(nil, admissionregistrationv1.SideEffectClassUnknown, SpecTimeout(2*patience)),
		Entry(nil, admissionregistrationv1.SideEffectClassSome, SpecTimeout(2*patience)),
	)

	eachMode(func(mode mode) {
		It("send dry runs, marked as such, to both classes of sideEffects", func(ctx SpecContext) {
			step := func(id string, class admissionregistrationv1.SideEffectClass) eirinix.Mutation[*corev1.ConfigMap] {
				return eirinix.Mutation[*corev1.ConfigMap]{ID: id, Settings: eirinix.Settings{SideEffects: class}, Apply: func(_ context.Context, c *eirinix.Call, _ *corev1.ConfigMap) error {
					calls.add(id, fmt.Sprint(c.DryRun != nil && *c.DryRun))
					return nil
				}}
			}
			serve(ctx, mode, namespace, nil, step("none", admissionregistrationv1.SideEffectClassNone), step("dry", admissionregistrationv1.SideEffectClassNoneOnDryRun))
			for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
				_, err := clients().CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap("dry", nil), metav1.CreateOptions{DryRun: dryRun})
				Expect(err).NotTo(HaveOccurred())
				Expect(calls.take()).To(ConsistOf(fmt.Sprintf("none %t", dryRun != nil), fmt.Sprintf("dry %t", dryRun != nil)))
			}
		}, SpecTimeout(2*patience))

		It("select by the labels of the object, new or old", func(ctx SpecContext) {
			note := func(id string) func(context.Context, *eirinix.Call, *corev1.ConfigMap) error {
				return func(_ context.Context, c *eirinix.Call, m *corev1.ConfigMap) error {
					calls.add(id, string(c.Operation))
					return nil
				}
			}
			chosen := eirinix.Settings{Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"chosen": "yes"}}}
			serve(ctx, mode, namespace, nil,
				eirinix.Mutation[*corev1.ConfigMap]{ID: "mutating", Settings: chosen, Apply: note("mutating")},
				eirinix.Validation[*corev1.ConfigMap]{
					ID: "validating", Settings: chosen, Create: note("validating"), Delete: note("validating"),
					Update: func(ctx context.Context, c *eirinix.Call, _, now *corev1.ConfigMap) error {
						return note("validating")(ctx, c, now)
					},
				})
			maps := clients().CoreV1().ConfigMaps(namespace)
			_, err := createConfigMap(ctx, namespace, newConfigMap("a", nil))
			Expect(err).NotTo(HaveOccurred())
			Expect(calls.take()).To(BeEmpty(), "not chosen")
			for _, patch := range []string{`{"metadata":{"labels":{"chosen":"yes"}}}`, `{"data":{"a":"b"}}`, `{"metadata":{"labels":{"chosen":"no"}}}`} {
				m, err := maps.Patch(ctx, "a", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
				Expect(err).NotTo(HaveOccurred())
				Expect(calls.take()).To(Equal([]string{"mutating UPDATE", "validating UPDATE"}), patch)
				// The API server admits an update of the object that its watch cache holds. If that is an older one, it
				// admits the update once more.
				Eventually(func() (string, error) {
					cached, err := maps.Get(ctx, "a", metav1.GetOptions{ResourceVersion: "0"})
					return cached.GetResourceVersion(), err
				}).WithContext(ctx).Should(Equal(m.ResourceVersion))
			}
			_, err = maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"a":"c"}}`), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(maps.Delete(ctx, "a", metav1.DeleteOptions{})).To(Succeed())
			Expect(calls.take()).To(BeEmpty(), "chosen no more")
		}, SpecTimeout(2*patience))

		DescribeTable("distinguish objects of the cluster by their scope, Namespaces too",
			func(ctx SpecContext, scope admissionregistrationv1.ScopeType, expected ...string) {
				rules := ruleFor("", "v1", []string{"configmaps", "namespaces", "persistentvolumes"}, create)
				rules[0].Scope = &scope
				serve(ctx, mode, namespace, nil, eirinix.Validation[*unstructured.Unstructured]{
					ID:       "scoped",
					Settings: eirinix.Settings{Rules: rules, Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{"scope": namespace}}},
					Create: func(_ context.Context, c *eirinix.Call, u *unstructured.Unstructured) error {
						if strings.HasPrefix(u.GetName(), "scoped-") {
							calls.add(u.GetKind())
						}
						return nil
					},
				})
				labels := map[string]string{"scope": namespace}
				dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
				_, err := clients().CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"scope":%q}}}`, namespace), metav1.PatchOptions{})
				Expect(err).NotTo(HaveOccurred())
				_, err = clients().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "scoped-" + namespace, Labels: labels}}, dry)
				Expect(err).NotTo(HaveOccurred())
				_, err = clients().CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
					ObjectMeta: metav1.ObjectMeta{Name: "scoped-volume"},
					Spec: corev1.PersistentVolumeSpec{
						AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1M")},
						PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp/scoped"}},
					},
				}, dry)
				Expect(err).NotTo(HaveOccurred())
				create := func() []string { // the API server reads namespaces' labels from an informer
					_, err = clients().CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap("scoped-map", nil), dry)
					Expect(err).NotTo(HaveOccurred())
					return calls.list()
				}
				if slices.Contains(expected, "ConfigMap") {
					Eventually(create).WithContext(ctx).WithPolling(pollMarker).Should(ContainElement("ConfigMap"))
				} else {
					create()
				}
				seen := calls.take()
				slices.Sort(seen)
				Expect(slices.Compact(seen)).To(ConsistOf(expected))
			},
			Entry(nil, admissionregistrationv1.NamespacedScope, "ConfigMap", SpecTimeout(2*patience)),
			Entry(nil, admissionregistrationv1.ClusterScope, "Namespace", "PersistentVolume", SpecTimeout(2*patience)),
			Entry(nil, admissionregistrationv1.AllScopes, "ConfigMap", "Namespace", "PersistentVolume", SpecTimeout(2*patience)),
		)

		DescribeTable("decide on the outcome of an answer",
			func(ctx SpecContext, operation admissionregistrationv1.OperationType, answer func() admission.Response, underFail, underIgnore OmegaMatcher) {
				for policy, outcome := range map[admissionregistrationv1.FailurePolicyType]OmegaMatcher{fail: underFail, ignore: underIgnore} {
					in := newNamespace(ctx)
					serve(ctx, mode, in, nil, rawStep{
						name:     "raw",
						settings: eirinix.Settings{FailurePolicy: policy, Rules: ruleFor("", "v1", []string{"configmaps"}, operation)},
						handle:   func(admission.Request) admission.Response { return answer() },
					})
					_, err := createConfigMap(ctx, in, newConfigMap("a", map[string]string{"a": "b"}))
					if operation == remove {
						Expect(err).NotTo(HaveOccurred())
						err = clients().CoreV1().ConfigMaps(in).Delete(ctx, "a", metav1.DeleteOptions{})
					}
					Expect(err).To(outcome, string(policy))
				}
			},
			// The API server itself would refuse these under Ignore too, and not name the cause; the library
			// answers with an HTTP error instead, so that failurePolicy decides.
			Entry("a patch that removes an absent member", create, patched(`[{"op":"remove","path":"/data/nothing"}]`), failedCall("raw"), BeNil(), SpecTimeout(3*patience)),
			Entry("a patch below an absent member", create, patched(`[{"op":"add","path":"/metadata/labels/a/b","value":"c"}]`), failedCall("raw"), BeNil(), SpecTimeout(3*patience)),
			Entry("a patch whose test fails", create, patched(`[{"op":"test","path":"/data/a","value":"c"}]`), failedCall("raw"), BeNil(), SpecTimeout(3*patience)),
			Entry("a text that is no patch", create, patched(`{"a":"b"}`), failedCall("raw"), BeNil(), SpecTimeout(3*patience)),
			Entry("a patch of another type", create, func() admission.Response {
				resp := patched(`[]`)()
				resp.Patch, resp.PatchType = []byte(`[{"op":"add","path":"/data/c","value":"d"}]`), new(mergePatch)
				return resp
			}, failedCall("JSONPatch"), BeNil(), SpecTimeout(3*patience)),
			Entry("a patch on DELETE", remove, patched(`[{"op":"add","path":"/data/c","value":"d"}]`), failedCall("raw"), BeNil(), SpecTimeout(3*patience)),
			Entry("an empty patch on DELETE", remove, patched(`[]`), BeNil(), BeNil(), SpecTimeout(3*patience)),
			Entry("a failure", create, func() admission.Response {
				return admission.Errored(http.StatusInternalServerError, errors.New("no database"))
			},
				failedCall("no database"), BeNil(), SpecTimeout(3*patience)),
			// These are the user's, whatever the policy.
			Entry("a patch that makes the object invalid", create, patched(`[{"op":"add","path":"/data/not~1a~1key","value":"c"}]`),
				Satisfy(apierrors.IsInvalid), Satisfy(apierrors.IsInvalid), SpecTimeout(3*patience)),
			Entry("a patch that moves the object", create, patched(`[{"op":"replace","path":"/metadata/namespace","value":"default"}]`),
				Satisfy(apierrors.IsBadRequest), Satisfy(apierrors.IsBadRequest), SpecTimeout(3*patience)),
			Entry("a refusal with a code of its own", create, func() admission.Response {
				return admission.Response{AdmissionResponse: deniedWith(http.StatusTeapot, "I am a teapot")}
			}, refusedAs(http.StatusTeapot, "I am a teapot"), refusedAs(http.StatusTeapot, "I am a teapot"), SpecTimeout(3*patience)),
			Entry("a refusal without a code, which the library fills in", create, func() admission.Response {
				return admission.Response{AdmissionResponse: deniedWith(0, "just so")}
			}, refusedAs(http.StatusForbidden, "just so"), refusedAs(http.StatusForbidden, "just so"), SpecTimeout(3*patience)),
		)

		It("cut warnings to 256 characters once they are longer than 4096, and send them with a refusal too", func(ctx SpecContext) {
			serve(ctx, mode, namespace, nil, eirinix.Validation[*corev1.ConfigMap]{ID: "talkative", Create: func(_ context.Context, c *eirinix.Call, m *corev1.ConfigMap) error {
				for i := range len(m.Data["warnings"]) {
					c.Warn("%d%s", i, strings.Repeat("ä", 999))
					c.Warn("%s", "twice")
				}
				return eirinix.Deny("enough")
			}})
			for n, length := range map[int]int{2: 1000, 6: 256} {
				client, heard := listening()
				_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap("a", map[string]string{"warnings": strings.Repeat("w", n)}), metav1.CreateOptions{})
				Expect(err).To(MatchError(ContainSubstring("enough")))
				texts := heard.list()
				Expect(texts).To(HaveLen(n+1), "each once")
				Expect(texts).To(ContainElement("twice"))
				for _, text := range texts {
					if text != "twice" {
						Expect([]rune(text)).To(HaveLen(length), "%d warnings", n)
					}
				}
			}
		}, SpecTimeout(2*patience))
	})
})

const mergePatch = admissionv1.PatchType("MergePatch")

func patched(operations string) func() admission.Response {
	return func() admission.Response {
		return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(operations), PatchType: new(admissionv1.PatchTypeJSONPatch)}}
	}
}

func deniedWith(code int32, message string) admissionv1.AdmissionResponse {
	return admissionv1.AdmissionResponse{Result: &metav1.Status{Code: code, Message: message}}
}

// failedCall matches the user's error under Fail, which names the webhook and the reason.
func failedCall(why string) OmegaMatcher {
	return And(Satisfy(apierrors.IsInternalError), MatchError(And(ContainSubstring("failed calling webhook"), ContainSubstring(why))))
}

func refusedAs(code int32, message string) OmegaMatcher {
	return And(MatchError(And(ContainSubstring("denied the request"), ContainSubstring(message))),
		WithTransform(func(err error) int32 {
			var status apierrors.APIStatus
			if errors.As(err, &status) {
				return status.Status().Code
			}
			return 0
		}, Equal(code)))
}

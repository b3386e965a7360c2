package eirinix_test

// Specs of the Conversions that an audit plays, against a real API server.

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"code.cloudfoundry.org/eirinix/conversion"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/audit"
)

var _ = Describe("An audit of a Conversion", Label("api-server"), func() {
	var (
		namespace, group, crd string
		cluster               client.Client
		requests              *counted
	)
	BeforeEach(func(ctx SpecContext) {
		namespace = newNamespace(ctx)
		group = namespace + ".example.com"
		crd, cluster, requests = "shops."+group, anyClient(), &counted{}
	})
	type shop = *unstructured.Unstructured
	// colors is a Conversion whose v1beta1 has no color. It fails for an object, and panics for another one.
	colors := func(lossy bool) conversion.Of[shop] {
		return conversion.Of[shop]{CRD: crd, Version: "v1", Lossy: lossy, Spokes: []conversion.Spoke[shop]{conversion.NewSpoke("v1beta1",
			func(_ context.Context, from shop) (shop, error) {
				from.Object["seen"] = "in v1beta1"
				return from, nil
			},
			func(_ context.Context, from shop) (shop, error) {
				switch from.GetName() {
				case "odd":
					return nil, errors.New("not this one")
				case "bad":
					panic("boom")
				}
				delete(from.Object, "color")
				delete(from.Object, "seen")
				return from, nil
			})}}
	}
	create := func(ctx context.Context, version, in, name, color string) {
		GinkgoHelper()
		s := newShop(group, in, name)
		s.SetAPIVersion(group + "/" + version)
		s.Object["color"], s.Object["seen"] = color, "in v1beta1"
		Eventually(func() error { return cluster.Create(ctx, s.DeepCopy()) }).WithContext(ctx).WithTimeout(patience).Should(Succeed())
	}
	store := func(ctx context.Context, version string) {
		GinkgoHelper()
		patch := fmt.Sprintf(`[{"op":"add","path":"/spec/versions/0/storage","value":%t},{"op":"add","path":"/spec/versions/1/storage","value":%t}]`, version == "v1", version != "v1")
		Expect(cluster.Patch(ctx, definition(group), client.RawPatch(types.JSONPatchType, []byte(patch)))).To(Succeed())
	}
	define := func(ctx context.Context, storage string) {
		GinkgoHelper()
		Expect(cluster.Create(ctx, twoVersions(group))).To(Succeed())
		DeferCleanup(cluster.Delete, twoVersions(group))
		store(ctx, storage)
	}
	ask := func(ctx context.Context, o audit.Options, added ...any) (found []string, summary audit.Summary, err error) {
		GinkgoHelper()
		options := urlOptions(namespace)
		options.RestConfig = requests.wrap(options.RestConfig)
		m := eirinix.NewManager(options)
		for _, a := range added {
			Expect(m.AddExtension(a)).To(Succeed())
		}
		o.Finding = func(f audit.Finding) error {
			found = append(found, strings.Join([]string{string(f.Result), f.Step, f.Name, f.Text()}, " | "))
			return nil
		}
		summary, err = audit.Run(ctx, m, o)
		return found, summary, err
	}
	stored := func(ctx context.Context) map[string]string {
		GinkgoHelper()
		all := &unstructured.UnstructuredList{}
		all.SetAPIVersion(group + "/v1")
		all.SetKind("ShopList")
		Expect(cluster.List(ctx, all)).To(Succeed())
		versions := map[string]string{}
		for _, s := range all.Items {
			versions[s.GetName()] = s.GetResourceVersion()
		}
		return versions
	}

	It("finds objects that lose, fail and panic, also those that are stored in an older version, and writes nothing", func(ctx SpecContext) {
		define(ctx, "v1beta1")
		create(ctx, "v1beta1", namespace, "older", "red")
		store(ctx, "v1")
		for _, name := range []string{"newer", "odd", "bad"} {
			create(ctx, "v1", namespace, name, "blue")
		}
		other := newNamespace(ctx)
		create(ctx, "v1", other, "elsewhere", "green")
		m := eirinix.NewManager(urlOptions(namespace))
		Expect(m.AddExtension(colors(false))).To(Succeed())
		runManager(ctx, m)
		before := stored(ctx)
		found, summary, err := ask(ctx, audit.Options{}, colors(false))
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(ConsistOf(
			"drift | "+crd+" | newer | v1beta1 cannot hold /color, which annotations keep",
			"drift | "+crd+" | older | v1beta1 cannot hold /color, which annotations keep",
			"drift | "+crd+" | elsewhere | v1beta1 cannot hold /color, which annotations keep",
			"failed | "+crd+" | odd | to v1beta1: the conversion from v1 to v1beta1 failed: not this one",
			"failed | "+crd+" | bad | to v1beta1: the conversion panicked: boom",
		))
		Expect(summary.Asked).To(Equal(map[string]int{crd: 5}))
		Expect(summary.Objects).To(Equal(5))
		for _, r := range requests.all {
			Expect(r).To(HavePrefix("GET "))
		}

		By("auditing again, page by page")
		again, _, err := ask(ctx, audit.Options{PageSize: 2}, colors(false))
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(Equal(found))
		Expect(stored(ctx)).To(Equal(before))

		By("auditing one namespace")
		found, _, err = ask(ctx, audit.Options{Namespace: other}, colors(false))
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(ConsistOf(HavePrefix("drift | " + crd + " | elsewhere ")))
	}, SpecTimeout(3*patience))

	It("needs no webhook, and plays steps about the same kind, too", func(ctx SpecContext) {
		define(ctx, "v1")
		create(ctx, "v1", namespace, "a", "red")
		step := eirinix.Validation[shop]{ID: "shops", Settings: eirinix.Settings{Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{"shops"}},
		}}}, Create: func(context.Context, *eirinix.Call, shop) error { return eirinix.Deny("no") }}
		lost := "drift | " + crd + " | a | v1beta1 cannot hold /color, which is lost"
		found, summary, err := ask(ctx, audit.Options{}, colors(true), step)
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(Equal([]string{lost, "denied | shops | a | no"}))
		Expect(summary.Objects).To(Equal(1))
		Expect(requests.count("GET /apis/" + group + "/v1/shops")).To(Equal(1))

		By("selecting the Conversion alone")
		found, summary, err = ask(ctx, audit.Options{Steps: []string{crd}}, colors(true), step)
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(Equal([]string{lost}))
		Expect(summary.Asked).To(Equal(map[string]int{crd: 1}))
		_, _, err = ask(ctx, audit.Options{Steps: []string{"carts." + group}}, colors(true), step)
		Expect(err).To(MatchError(ContainSubstring("but the steps are shops, " + crd)))
	}, SpecTimeout(2*patience))

	It("lists another version if the one in which objects are stored is not served", func(ctx SpecContext) {
		define(ctx, "v1beta1")
		create(ctx, "v1beta1", namespace, "a", "red")
		Expect(cluster.Patch(ctx, definition(group), client.RawPatch(types.JSONPatchType, []byte(`[{"op":"add","path":"/spec/versions/1/served","value":false}]`)))).To(Succeed())
		m := eirinix.NewManager(urlOptions(namespace))
		Expect(m.AddExtension(colors(false))).To(Succeed())
		runManager(ctx, m)
		found, _, err := ask(ctx, audit.Options{}, colors(false))
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(Equal([]string{"drift | " + crd + " | a | v1beta1 cannot hold /color, which annotations keep"}))
	}, SpecTimeout(2*patience))

	It("has a gap while there is no definition", func(ctx SpecContext) {
		found, summary, err := ask(ctx, audit.Options{}, colors(false))
		Expect(err).To(HaveOccurred())
		Expect(summary.Gaps).To(HaveExactElements(And(
			HaveField("Step", crd), HaveField("Reason", And(ContainSubstring("its CustomResourceDefinition cannot be read"), ContainSubstring("not found"))),
			HaveField("Remedy", ContainSubstring("with its CustomResourceDefinition")))))
		Expect(found).To(HaveLen(1))
	}, SpecTimeout(patience))
})

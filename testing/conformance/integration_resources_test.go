package conformance_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// certificateRequest is a CSR as it stands in JSON, unarmoredRequest the same without PEM, and certificate one of a CA.
var certificateRequest, unarmoredRequest, certificate = func() (request, unarmored, certificate string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err.Error(), "", ""
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "stub"}}, key)
	if err != nil {
		return err.Error(), "", ""
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	trusted, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		return err.Error(), "", ""
	}
	request = base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	inJSON := strings.ReplaceAll(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: trusted})), "\n", `\n`)
	return request, base64.StdEncoding.EncodeToString(der), inJSON
}()

// S23 plays every verb on every resource that discovery serves.
type everyResource struct {
	namespace string
	user      string
	resources map[schema.GroupVersionResource]metav1.APIResource // subresources as pods/exec

	// first maps a resource to the one that stands in the rules with matchPolicy Equivalent: the same by another
	// group or version, if there is one.
	first map[schema.GroupVersionResource]schema.GroupVersionResource

	client   dynamic.Interface
	clients  kubernetes.Interface
	warnings *overheard
	seen     *witness
}

func newEveryResource(ctx context.Context) *everyResource {
	GinkgoHelper()
	e := &everyResource{
		namespace: newNamespace(ctx), user: "every-resource", warnings: &overheard{},
		resources: map[schema.GroupVersionResource]metav1.APIResource{}, first: map[schema.GroupVersionResource]schema.GroupVersionResource{},
	}
	// The label selects the namespace, and the Namespace that is played.
	_, err := clients().CoreV1().Namespaces().Patch(ctx, e.namespace, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"resources":%q}}}`, e.namespace), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
	newResource(ctx, "widgets.example.com", "Widget", "v1", "v2")
	config := rest.CopyConfig(controlPlane().Config())
	// A user of its own distinguishes these requests from those of the API server itself.
	config.Impersonate = rest.ImpersonationConfig{UserName: e.user, Groups: []string{"system:masters", "system:authenticated"}}
	config.WarningHandler = e.warnings
	e.clients = Clients(config)
	e.client, err = dynamic.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	e.discover()
	e.seen = &witness{e: e}
	return e
}

func (e *everyResource) discover() {
	GinkgoHelper()
	_, lists, err := discovery.ServerGroupsAndResources(clients().Discovery())
	Expect(err).NotTo(HaveOccurred())
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		Expect(err).NotTo(HaveOccurred())
		if strings.Contains(version.Group, ".example.") && version.Group != "widgets.example.com" {
			continue // another spec's
		}
		for _, r := range list.APIResources {
			if r.Group == "" {
				r.Group = version.Group
			}
			if r.Version == "" {
				r.Version = version.Version
			}
			e.resources[version.WithResource(r.Name)] = r
		}
	}
	byName := map[string]schema.GroupVersionResource{}
	for _, r := range e.sorted() {
		if _, known := byName[r.Resource]; !known {
			byName[r.Resource] = r
		}
		e.first[r] = byName[r.Resource]
	}
}

func (e *everyResource) sorted() []schema.GroupVersionResource {
	return slices.SortedFunc(maps.Keys(e.resources), func(a, b schema.GroupVersionResource) int {
		return slices.Compare([]string{a.Group, a.Version, a.Resource}, []string{b.Group, b.Version, b.Resource})
	})
}

// rules are those of the Exact hooks, and with equivalent the enumerated ones.
func (e *everyResource) rules(equivalent bool, operations ...admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
	if !equivalent {
		return ruleFor("*", "*", []string{"*/*"}, operations...)
	}
	var rules []admissionregistrationv1.RuleWithOperations
	for _, r := range e.sorted() {
		if e.first[r] == r {
			rules = append(rules, ruleFor(r.Group, r.Version, []string{r.Resource}, operations...)...)
		}
	}
	return rules
}

// steps are hooks of both kinds and with both matchPolicies, each of which warns by its name.
func (e *everyResource) steps(version string) []any {
	const create, update, remove, connect = admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete, admissionregistrationv1.Connect
	settings := func(equivalent bool, operations ...admissionregistrationv1.OperationType) eirinix.Settings {
		s := eirinix.Settings{
			Rules: e.rules(equivalent, operations...), MatchPolicy: admissionregistrationv1.Exact, AllowClusterCritical: true,
			Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{"resources": e.namespace}},
		}
		if equivalent {
			s.MatchPolicy = admissionregistrationv1.Equivalent
		}
		return s
	}
	raw := func(id, hook string, s eirinix.Settings) rawStep {
		return rawStep{name: id, settings: s, handle: func(req admission.Request) admission.Response {
			resp := admission.Allowed("").WithWarnings(hook)
			if e.seen.saw(hook, &req) && len(req.Object.Raw) > 0 {
				resp.Patch = []byte(`[{"op":"add","path":"/bar","value":"raw"}]`) // built-in kinds drop unknown fields
			}
			return resp
		}}
	}
	look := func(hook string) func(context.Context, *eirinix.Call, *unstructured.Unstructured) error {
		return func(_ context.Context, c *eirinix.Call, _ *unstructured.Unstructured) error {
			e.seen.saw(hook, &c.Request)
			c.Warn("%s", hook)
			return nil
		}
	}
	var steps []any
	for _, equivalent := range []bool{false, true} {
		policy := map[bool]string{false: "exact", true: "equivalent"}[equivalent]
		mutating, validating := version+"/mutating/"+policy, version+"/validating/"+policy
		e.seen.hooks = append(e.seen.hooks, mutating, validating)
		if equivalent {
			steps = append(steps,
				eirinix.Mutation[*unstructured.Unstructured]{
					ID: "m-" + policy, Settings: settings(equivalent, create, update),
					Apply: func(_ context.Context, c *eirinix.Call, u *unstructured.Unstructured) error {
						e.seen.saw(mutating, &c.Request)
						c.Warn("%s", mutating)
						u.Object["bar"] = "typed"
						return nil
					},
				},
				raw("m-rest-"+policy, mutating, settings(equivalent, connect, remove)))
		} else {
			steps = append(steps, raw("m-"+policy, mutating, settings(equivalent, create, update, connect, remove)))
		}
		steps = append(steps,
			eirinix.Validation[*unstructured.Unstructured]{
				ID: "v-" + policy, Settings: settings(equivalent, create, update, remove),
				Create: look(validating), Delete: look(validating),
				Update: func(ctx context.Context, c *eirinix.Call, _, now *unstructured.Unstructured) error {
					return look(validating)(ctx, c, now)
				},
			},
			eirinix.Subresource[*unstructured.Unstructured]{
				ID: "v-connect-" + policy, Settings: settings(equivalent, connect),
				Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Subresource: "exec", // the rules say more
				Check: func(ctx context.Context, c *eirinix.Call, _, now *unstructured.Unstructured) error {
					return look(validating)(ctx, c, now)
				},
			})
	}
	return steps
}

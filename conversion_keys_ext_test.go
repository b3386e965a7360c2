package eirinix_test

// This file specifies the keys that sign what conversions keep: how replicas make, share, replace and lose them.

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/conversion"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// notedShops converts shops, of which v1beta1 lacks the note.
func notedShops(group string) conversion.Of[*unstructured.Unstructured] {
	return conversion.Of[*unstructured.Unstructured]{
		CRD: "shops." + group, Version: "v1",
		Spokes: []conversion.Spoke[*unstructured.Unstructured]{conversion.NewSpoke("v1beta1", unchanged,
			func(_ context.Context, from *unstructured.Unstructured) (*unstructured.Unstructured, error) {
				delete(from.Object, "note")
				return from, nil
			},
		)},
	}
}

// replica is one of the processes of a program, which a spec calls itself.
type replica struct {
	*eirinix.ExtensionManager
	client *http.Client
	path   string
}

// newReplica runs a replica with a Conversion until the spec ends.
func newReplica(ctx context.Context, namespace string, c conversion.Of[*unstructured.Unstructured], changes ...func(*eirinix.ManagerOptions)) replica {
	GinkgoHelper()
	o := urlOptions(namespace)
	o.Host, o.ServiceName, o.WebhookNamespace, o.DrainDelay = "", "shops", namespace, -1 // nothing balances calls of replicas here
	for _, change := range changes {
		change(&o)
	}
	r := replica{managerWith(o, c), &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: patience,
	}, "/convert/" + c.CRD}
	startManager(ctx, r.ExtensionManager) // it is not ready for a while, because no API server can call it
	Eventually(r.Addr).WithContext(ctx).WithTimeout(patience).ShouldNot(BeNil())
	Eventually(func() error { _, err := r.convert("v1", `{"apiVersion":"`+r.group()+`/v1","kind":"Shop"}`); return err }).WithContext(ctx).WithTimeout(patience).Should(Succeed())
	return r
}

// group is that of the kind that the replica converts.
func (r replica) group() string {
	_, group, _ := strings.Cut(r.path, ".")
	return group
}

// convert returns the object in another version, or the status and the text of an answer without it.
func (r replica) convert(version, object string) (string, error) {
	body := fmt.Sprintf(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"u","desiredAPIVersion":"%s/%s","objects":[%s]}}`,
		r.group(), version, object)
	response, err := r.client.Post("https://"+r.Addr().String()+r.path, "application/json", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	var answer struct {
		Response struct{ ConvertedObjects []json.RawMessage }
	}
	if err := json.Unmarshal(text, &answer); err == nil && len(answer.Response.ConvertedObjects) == 1 {
		return string(answer.Response.ConvertedObjects[0]), nil
	}
	return "", fmt.Errorf("%d%s: %s", response.StatusCode, map[bool]string{true: ", closing"}[response.Close], text)
}

var _ = Describe("The keys of conversions", Label("api-server"), func() {
	var namespace, group, secretName string
	BeforeEach(func(ctx SpecContext) {
		namespace = newNamespace(ctx)
		group, secretName = namespace+".example.com", namespace+"-conversions"
	})

	begin := func(ctx context.Context, changes ...func(*eirinix.ManagerOptions)) replica {
		GinkgoHelper()
		return newReplica(ctx, namespace, notedShops(group), changes...)
	}
	secret := func(ctx context.Context) *corev1.Secret {
		GinkgoHelper()
		return Must(clients().CoreV1().Secrets(namespace).Get(ctx, secretName, metav1.GetOptions{}))
	}
	shop := func(i int) string {
		return fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Shop","metadata":{"name":"a"},"note":"n%d"}`, group, i)
	}
	// travels converts an object there with one replica, and back with another.
	travels := func(i int, there, back replica) error {
		older, err := there.convert("v1beta1", shop(i))
		if err != nil {
			return err
		}
		newer, err := back.convert("v1", older)
		if err != nil {
			return err
		}
		if same, err := MatchJSON(shop(i)).Match(newer); err != nil || !same || strings.Contains(older, `"note":"`) {
			return fmt.Errorf("%s went to %s and came back as %s", shop(i), older, newer)
		}
		return nil
	}

	It("are made once by replicas that start at the same time", func(ctx SpecContext) {
		replicas := make([]replica, 3)
		var starting sync.WaitGroup
		for i := range replicas {
			starting.Go(func() {
				defer GinkgoRecover()
				replicas[i] = begin(ctx)
			})
		}
		starting.Wait()
		Expect(secret(ctx).Data).To(HaveLen(1))
		for i, there := range replicas {
			Expect(travels(1, there, replicas[(i+1)%3])).To(Succeed())
		}
	})

	It("stay in the memory of running replicas, and values under a key that is gone stay in the object until it is back", func(ctx SpecContext) {
		first := begin(ctx)
		old := secret(ctx)
		older, err := first.convert("v1beta1", shop(1))
		Expect(err).NotTo(HaveOccurred())
		Expect(clients().CoreV1().Secrets(namespace).Delete(ctx, secretName, metav1.DeleteOptions{})).To(Succeed())
		Expect(travels(2, first, first)).To(Succeed())

		second := begin(ctx) // makes a Secret with a key of its own
		Expect(secret(ctx).Data).NotTo(Equal(old.Data))
		Expect(travels(3, second, first)).To(Succeed(), "the running replica looks for the key that it does not know")
		newer, err := second.convert("v1", older)
		Expect(err).NotTo(HaveOccurred())
		Expect(newer).To(And(Not(ContainSubstring(`"note":"n`)), ContainSubstring(`\".note\"`)), "the annotation stays, the value is not applied")

		restored := secret(ctx)
		for entry, key := range old.Data {
			restored.Data["0"+entry] = key // it signs no more
		}
		Must(clients().CoreV1().Secrets(namespace).Update(ctx, restored, metav1.UpdateOptions{}))
		third := begin(ctx)
		Expect(third.convert("v1", older)).To(MatchJSON(shop(1)))
		again, err := third.convert("v1beta1", newer) // the object was written without the value meanwhile
		Expect(err).NotTo(HaveOccurred())
		Expect(third.convert("v1", again)).To(MatchJSON(shop(1)))
	})

	It("are made by the half that registers", func(ctx SpecContext) {
		half := urlOptions(namespace)
		half.Host, half.ServiceName, half.WebhookNamespace = "", "shops", namespace
		registering := managerWith(half, notedShops(group))
		Expect(registering.RegisterExtensions()).To(Succeed())
		key := secret(ctx)
		Expect(registering.RegisterExtensions()).To(Succeed())
		Expect(secret(ctx).ResourceVersion).To(Equal(key.ResourceVersion), "the second run changes nothing")

		serves := func(o *eirinix.ManagerOptions) { o.RegisterWebHook = new(false) }
		serving := begin(ctx, serves)
		Expect(travels(1, serving, serving)).To(Succeed())

		Expect(clients().CoreV1().Secrets(namespace).Delete(ctx, secretName, metav1.DeleteOptions{})).To(Succeed())
		early := begin(ctx, serves)
		_, err := early.convert("v1beta1", shop(1))
		Expect(err).To(MatchError(And(ContainSubstring("there is no key to sign"), ContainSubstring(namespace+"/"+secretName))))
		_, err = early.convert("v1beta1", strings.Replace(shop(1), `,"note":"n1"`, "", 1))
		Expect(err).NotTo(HaveOccurred(), "nothing is lost of this one")
		Expect(registering.RegisterExtensions()).To(Succeed())
		Expect(travels(1, early, early)).To(Succeed())
	})

	DescribeTable("that cannot be used are an error with a remedy", func(ctx SpecContext, data map[string][]byte, reason string) {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName}, Data: data}
		Must(clients().CoreV1().Secrets(namespace).Create(ctx, s, metav1.CreateOptions{}))
		Expect(managerWith(urlOptions(namespace), notedShops(group)).Run(ctx)).To(MatchError(And(ContainSubstring(namespace+"/"+secretName), ContainSubstring(reason))))
	},
		Entry("because there are none", map[string][]byte{}, "delete it to have a new one made"),
		Entry("because one is short", map[string][]byte{"a": []byte("secret")}, `the key "a"`),
	)
})

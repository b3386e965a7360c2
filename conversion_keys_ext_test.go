package eirinix_test

// This file holds the specs of the keys that sign what conversions keep.

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"code.cloudfoundry.org/eirinix/conversion"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
)

// notedShops converts shops, of which v1beta1 lacks the note.
func notedShops(group string) conversion.Of[*unstructured.Unstructured] {
	same := func(_ context.Context, from *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return from, nil
	}
	return conversion.Of[*unstructured.Unstructured]{
		CRD: "shops." + group, Version: "v1",
		Spokes: []conversion.Spoke[*unstructured.Unstructured]{conversion.NewSpoke("v1beta1", same,
			func(_ context.Context, from *unstructured.Unstructured) (*unstructured.Unstructured, error) {
				delete(from.Object, "note")
				return from, nil
			},
		)},
	}
}

// A replica is a Manager with notedShops.
type replica struct {
	*eirinix.ExtensionManager
	group  string
	client *http.Client
	stop   context.CancelFunc
}

// convert returns the object in another version, or the reason why there is none.
func (r replica) convert(version, object string) (string, error) {
	body := fmt.Sprintf(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"u","desiredAPIVersion":"%s/%s","objects":[%s]}}`,
		r.group, version, object)
	response, err := r.client.Post("https://"+r.Addr().String()+"/convert/shops."+r.group, "application/json", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	var answer struct {
		Response struct {
			ConvertedObjects []json.RawMessage
			Result           metav1.Status
		}
	}
	var text bytes.Buffer
	if _, err := text.ReadFrom(response.Body); err != nil {
		return "", err
	}
	if err := json.Unmarshal(text.Bytes(), &answer); err != nil || len(answer.Response.ConvertedObjects) != 1 {
		return "", fmt.Errorf("%s", text.String())
	}
	return string(answer.Response.ConvertedObjects[0]), nil
}

var _ = Describe("The keys of conversions", Label("api-server"), func() {
	var namespace, group, secretName string
	BeforeEach(func(ctx SpecContext) {
		namespace = newNamespace(ctx)
		group, secretName = namespace+".example.com", namespace+"-conversions"
	})

	begin := func(ctx context.Context, change ...func(*eirinix.ManagerOptions)) replica {
		GinkgoHelper()
		o := urlOptions(namespace)
		o.Host, o.ServiceName, o.WebhookNamespace = "", "shops", namespace // replicas of one program, which the spec calls itself
		for _, f := range change {
			f(&o)
		}
		running, stop := context.WithCancel(ctx)
		r := replica{eirinix.NewManager(o), group, &http.Client{
			Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: patience,
		}, stop}
		Expect(r.AddExtension(notedShops(group))).To(Succeed())
		runManager(running, r.ExtensionManager)
		return r
	}
	secret := func(ctx context.Context) *corev1.Secret {
		GinkgoHelper()
		s, err := clients().CoreV1().Secrets(namespace).Get(ctx, secretName, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return s
	}
	addKey := func(ctx context.Context, entry string) {
		GinkgoHelper()
		s := secret(ctx)
		s.Data[entry] = []byte(strings.Repeat(entry, 32)[:32])
		_, err := clients().CoreV1().Secrets(namespace).Update(ctx, s, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	noted := func(i int) string {
		return fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Shop","metadata":{"name":"a"},"note":"n%d"}`, group, i)
	}
	// travels converts an object there with one replica, and back with another.
	travels := func(i int, there, back replica) error {
		older, err := there.convert("v1beta1", noted(i))
		if err != nil {
			return err
		}
		if strings.Contains(older, `"note":"`) {
			return fmt.Errorf("it was not converted: %s", older)
		}
		newer, err := back.convert("v1", older)
		if err == nil && newer != noted(i) {
			same, _ := MatchJSON(noted(i)).Match(newer)
			if !same {
				err = fmt.Errorf("%s came back as %s", noted(i), newer)
			}
		}
		return err
	}
	missing := func(version, object string, r replica) {
		GinkgoHelper()
		newer, err := r.convert(version, object)
		Expect(err).NotTo(HaveOccurred())
		Expect(newer).To(And(Not(ContainSubstring(`"note":"n`)), ContainSubstring(`\".note\"`)), "the annotation stays, the value is not applied")
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
		for _, there := range replicas {
			for _, back := range replicas {
				Expect(travels(1, there, back)).To(Succeed())
			}
		}
	})

	It("are replaced without a lost value, while all replicas convert", func(ctx SpecContext) {
		var replicas atomic.Pointer[[]replica]
		replicas.Store(&[]replica{begin(ctx), begin(ctx)})
		var converting sync.WaitGroup
		working, end := context.WithCancel(ctx)
		defer end()
		var failed atomic.Pointer[error]
		var count atomic.Int64
		for worker := range 4 {
			converting.Go(func() {
				random := rand.New(rand.NewPCG(uint64(worker), 1))
				for working.Err() == nil {
					all := *replicas.Load()
					if err := travels(int(count.Add(1)), all[random.IntN(len(all))], all[random.IntN(len(all))]); err != nil {
						failed.CompareAndSwap(nil, &err)
					}
				}
			})
		}
		for i := range 5 {
			before := count.Load()
			addKey(ctx, fmt.Sprintf("9%d", i))
			// A replica that has just started signs with the new key. The others meet it in what they convert.
			replicas.Store(new(append([]replica{begin(ctx)}, *replicas.Load()...)))
			Eventually(count.Load).WithTimeout(patience).Should(BeNumerically(">", before+100))
		}
		end()
		converting.Wait()
		if err := failed.Load(); err != nil {
			Fail((*err).Error())
		}
		Expect(count.Load()).To(BeNumerically(">", 500))
	})

	It("stay in the memory of running replicas, and values under a key that is gone stay in the object", func(ctx SpecContext) {
		first := begin(ctx)
		old := secret(ctx)
		older, err := first.convert("v1beta1", noted(1))
		Expect(err).NotTo(HaveOccurred())
		Expect(clients().CoreV1().Secrets(namespace).Delete(ctx, secretName, metav1.DeleteOptions{})).To(Succeed())
		Expect(travels(2, first, first)).To(Succeed())

		second := begin(ctx) // makes a Secret with a key of its own
		Expect(secret(ctx).Data).NotTo(Equal(old.Data))
		Expect(travels(3, second, first)).To(Succeed(), "the running replica looks for the key that it does not know")
		missing("v1", older, second)
		newer, err := second.convert("v1", older)
		Expect(err).NotTo(HaveOccurred())

		restored := secret(ctx)
		for entry, key := range old.Data {
			restored.Data["0"+entry] = key // it signs no more
		}
		_, err = clients().CoreV1().Secrets(namespace).Update(ctx, restored, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		third := begin(ctx)
		Expect(third.convert("v1", older)).To(MatchJSON(noted(1)))
		again, err := third.convert("v1beta1", newer) // the object was written without the value meanwhile
		Expect(err).NotTo(HaveOccurred())
		Expect(third.convert("v1", again)).To(MatchJSON(noted(1)))
	})

	It("move with the objects if their Secret is copied", func(ctx SpecContext) {
		first := begin(ctx)
		older, err := first.convert("v1beta1", noted(1))
		Expect(err).NotTo(HaveOccurred())
		copied := secret(ctx)
		other := newNamespace(ctx)
		copied.ObjectMeta = metav1.ObjectMeta{Name: secretName, Namespace: other}
		_, err = clients().CoreV1().Secrets(other).Create(ctx, copied, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		moved := begin(ctx, func(o *eirinix.ManagerOptions) { o.WebhookNamespace, o.Namespace = other, other })
		Expect(moved.convert("v1", older)).To(MatchJSON(noted(1)))

		stranger := newNamespace(ctx)
		missing("v1", older, begin(ctx, func(o *eirinix.ManagerOptions) { o.WebhookNamespace, o.Namespace = stranger, stranger }))
	})

	It("are made by the half that registers", func(ctx SpecContext) {
		half := urlOptions(namespace)
		half.Host, half.ServiceName, half.WebhookNamespace = "", "shops", namespace
		registering := eirinix.NewManager(half)
		Expect(registering.AddExtension(notedShops(group))).To(Succeed())
		Expect(registering.RegisterExtensions()).To(Succeed())
		key := secret(ctx)
		Expect(registering.RegisterExtensions()).To(Succeed())
		Expect(secret(ctx).ResourceVersion).To(Equal(key.ResourceVersion), "the second run changes nothing")

		serves := func(o *eirinix.ManagerOptions) { o.RegisterWebHook = new(false) }
		serving := begin(ctx, serves)
		Expect(travels(1, serving, serving)).To(Succeed())

		Expect(clients().CoreV1().Secrets(namespace).Delete(ctx, secretName, metav1.DeleteOptions{})).To(Succeed())
		early := begin(ctx, serves)
		_, err := early.convert("v1beta1", noted(1))
		Expect(err).To(MatchError(And(ContainSubstring("there is no key to sign"), ContainSubstring(namespace+"/"+secretName))))
		_, err = early.convert("v1beta1", strings.Replace(noted(1), `,"note":"n1"`, "", 1))
		Expect(err).NotTo(HaveOccurred(), "nothing is lost of this one")
		Expect(registering.RegisterExtensions()).To(Succeed())
		Expect(travels(1, early, early)).To(Succeed())
	})

	DescribeTable("that cannot be used are an error with a remedy", func(ctx SpecContext, data map[string][]byte, reason string) {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName}, Data: data}
		_, err := clients().CoreV1().Secrets(namespace).Create(ctx, s, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		m := eirinix.NewManager(urlOptions(namespace))
		Expect(m.AddExtension(notedShops(group))).To(Succeed())
		Expect(m.Run(ctx)).To(MatchError(And(ContainSubstring(namespace+"/"+secretName), ContainSubstring(reason))))
	},
		Entry("because there are none", map[string][]byte{}, "delete it to have a new one made"),
		Entry("because one is short", map[string][]byte{"a": []byte("secret")}, `the key "a"`),
	)
})

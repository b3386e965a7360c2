package preview_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/preview"
)

// roundTrip is a transport that a function plays.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var _ = Describe("Extensions with a client", func() {
	reader := eirinix.Validation[*corev1.Pod]{ID: "reader", Create: func(ctx context.Context, c *eirinix.Call, pod *corev1.Pod) error {
		kube, err := c.Manager.GetKubeClient()
		if err != nil {
			return err
		}
		if _, err := kube.Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.New("the pod is there before it is created")
		}
		settings, err := kube.ConfigMaps(pod.Namespace).Get(ctx, "settings", metav1.GetOptions{})
		if err != nil {
			return eirinix.Deny("no settings")
		}
		if _, err := kube.Secrets(pod.Namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "token"}}, metav1.CreateOptions{}); err != nil {
			return err
		}
		return eirinix.Deny("settings say %s", settings.Data["a"])
	}}
	const settings = `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: b}}`

	It("find the manifests in the cluster, whatever their order, and have their writes reported", func() {
		p := command(program(reader), pod+"---\n"+settings, "-")
		Expect(p.stdout).To(And(ContainSubstring("by reader: settings say b"), ContainSubstring("would write: create secrets default/")))
	})

	It("read directly through a controller-runtime manager, and never through the program's own", func() {
		elsewhere := false
		theirs, err := manager.New(&rest.Config{Host: "http://cluster.invalid", Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			elsewhere = true
			return nil, errors.New("this is the cluster")
		})}, manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}, MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return meta.NewDefaultRESTMapper(nil), nil
		}})
		Expect(err).NotTo(HaveOccurred())
		x := eirinix.NewManager(eirinix.ManagerOptions{Host: "webhook.example.org", KubeManager: theirs})
		Expect(x.AddExtension(eirinix.Validation[*corev1.Pod]{ID: "cached", Create: func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			found := &corev1.ConfigMap{}
			if err := c.Manager.GetKubeManager().GetClient().Get(ctx, client.ObjectKey{Namespace: "default", Name: "settings"}, found); err != nil {
				return err
			}
			return eirinix.Deny("settings say %s", found.Data["a"])
		}})).To(Succeed())
		Expect(command(x, pod+"---\n"+settings, "-").stdout).To(ContainSubstring("by cached: settings say b"))
		Expect(elsewhere).To(BeFalse())
		Expect(x.GetKubeManager()).To(BeIdenticalTo(theirs), "the Manager is as it was")
	})

	It("find the results of the manifests before", func() {
		mark := eirinix.Mutation[*corev1.ConfigMap]{ID: "mark", Apply: func(_ context.Context, _ *eirinix.Call, m *corev1.ConfigMap) error {
			m.Data["a"] = "changed"
			return nil
		}}
		Expect(command(program(mark, reader), settings+"\n---\n"+pod, "-").stdout).To(ContainSubstring("by reader: settings say changed"))
	})

	It("find the objects that the program has put there", func() {
		var out bytes.Buffer
		err := preview.Command(GinkgoT().Context(), program(reader), []string{"-"}, func(o *preview.Options) {
			o.Stdin, o.Stdout = strings.NewReader(pod), &out
			c := &corev1.ConfigMap{Data: map[string]string{"a": "c"}}
			c.Name, c.Namespace = "settings", "default"
			o.Objects = append(o.Objects, c)
		})
		Expect(err).To(HaveOccurred())
		Expect(out.String()).To(ContainSubstring("settings say c"))
	})

	It("are reported when they ask for an object outside of the manifests", func() {
		Expect(command(program(reader), pod, "-").stdout).To(And(
			ContainSubstring("by reader: no settings"), ContainSubstring("not among the manifests: get configmaps default/settings")))
	})
})

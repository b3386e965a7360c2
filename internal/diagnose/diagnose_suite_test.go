package diagnose_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// patience bounds the time that a slow machine may take. A spec that passes does not wait for it.
const patience = 30 * time.Second

func TestDiagnose(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second) // of a busy machine
	RunSpecs(t, "internal/diagnose")
}

// controlPlane is one for the whole suite.
var controlPlane *eirinixtest.ControlPlane

var _ = BeforeSuite(func(ctx SpecContext) {
	if !Label("api-server").MatchesLabelFilter(GinkgoLabelFilter()) {
		return
	}
	var err error
	controlPlane, err = eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{Progress: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(controlPlane.Stop)
})

func admin() kubernetes.Interface {
	GinkgoHelper()
	return clientsFor(controlPlane.Config())
}

func clientsFor(config *rest.Config) kubernetes.Interface {
	GinkgoHelper()
	return must(kubernetes.NewForConfig(config))
}

// newNamespace makes a namespace of the spec's own.
func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	return must(admin().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"}}, metav1.CreateOptions{})).Name
}

func must[T any](v T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return v
}

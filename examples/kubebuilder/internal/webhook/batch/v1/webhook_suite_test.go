package v1

// This file starts an API server and a manager with the webhooks of this package, for the specs beside it.

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	batchv1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/api/batch/v1"
	"code.cloudfoundry.org/eirinix/examples/kubebuilder/internal/webhook/suite"
)

var (
	ctx       = context.Background()
	k8sClient client.Client
	testEnv   *envtest.Environment
)

func TestAPIs(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Webhooks of the group batch", Label("api-server"))
}

var _ = BeforeSuite(func() {
	testEnv, k8sClient = suite.Start(batchv1.AddToScheme, SetupCronJobWebhookWithManager)
})

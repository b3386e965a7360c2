package v1

// This file starts an API server and a manager with the webhooks of this package, for the specs beside it.

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/examples/kubebuilder/internal/webhook/suite"
)

var (
	ctx       = context.Background()
	k8sClient client.Client
)

func TestAPIs(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Webhooks of the group core", Label("api-server"))
}

var _ = BeforeSuite(func() {
	_, k8sClient = suite.Start(nil, SetupPodWebhookWithManager)
})

package webhookconf_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestWebhookconf(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "webhookconf")
}

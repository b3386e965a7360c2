package webhookconf_test

import (
	. "github.com/onsi/ginkgo/v2"

	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// controlPlane starts an API server for the specs of one container.
func controlPlane() plane {
	GinkgoHelper()
	c := eirinixtest.StartControlPlane(GinkgoT())
	return plane{config: c.Config(), restart: c.APIServer().Restart}
}

package webhookconf_test

import (
	. "github.com/onsi/ginkgo/v2"

	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// controlPlane starts an API server, and the controller manager if that is wanted.
func controlPlane(controllers bool) plane {
	GinkgoHelper()
	c := eirinixtest.StartControlPlane(GinkgoT(), func(o *eirinixtest.ControlPlaneOptions) { o.ControllerManager = controllers })
	return plane{config: c.Config(), restart: c.APIServer().Restart}
}

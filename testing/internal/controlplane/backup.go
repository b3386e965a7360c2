package controlplane

// This file saves the state of a control plane and puts it back, as an administrator does with a backup of etcd.

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Backup copies the data of etcd into a new folder. Meanwhile etcd is paused, so the copy is what a crash at that moment
// would have left, and no connection ends.
func (c *Plane) Backup(folder string) error {
	c.mu.Lock()
	etcd := c.etcd
	c.mu.Unlock()
	if err := etcd.pause(); err != nil {
		return fmt.Errorf("pause etcd: %w", err)
	}
	return errors.Join(os.CopyFS(folder, os.DirFS(c.etcdData())), etcd.resume())
}

// Restore replaces the data of etcd with those of a backup. It stops all API servers first, and APIServer.Restart starts
// each again on the port that it had. All writes since the backup are lost, and the revisions of etcd continue from those
// of the backup. A controller manager goes on running. Restore must not run at the same time as Stop.
func (c *Plane) Restore(ctx context.Context, folder string) error {
	c.mu.Lock()
	etcd, servers := c.etcd, c.apiServers
	c.mu.Unlock()
	for _, s := range servers {
		if err := s.Stop(); err != nil {
			return err
		}
	}
	if err := etcd.stop(etcdGrace); err != nil {
		return err
	}
	if err := os.RemoveAll(c.etcdData()); err != nil {
		return err
	}
	if err := os.CopyFS(c.etcdData(), os.DirFS(folder)); err != nil {
		return err
	}
	etcd, err := c.startServer(ctx, "etcd", c.etcdArgs, c.etcdReady)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.etcd = etcd
	return nil
}

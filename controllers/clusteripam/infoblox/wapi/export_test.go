package wapi

import "time"

// Base is the URL below which all requests go.
func (c *Client) Base() string { return c.base }

// Timeout limits every request.
func (c *Client) Timeout() time.Duration { return c.http.Timeout }

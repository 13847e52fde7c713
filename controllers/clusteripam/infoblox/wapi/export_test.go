package wapi

// Base is the URL below which all requests go.
func (c *Client) Base() string { return c.base }

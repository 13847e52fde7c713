// Package v20170312 stands in for the client of Tencent's cloud, which no module proxy has to serve: flannel has a backend for that cloud, which a
// test never names in its network configuration. It has what that backend needs to compile, and its calls fail.
package v20170312

import "errors"

var errStub = errors.New("this flanneld was built without the client of Tencent's cloud")

type (
	Client struct{}
	Filter struct {
		Name   *string
		Values []*string
	}
	Route struct {
		RouteId                                                 *uint64
		DestinationCidrBlock, GatewayId, GatewayType, RouteType *string
		Enabled                                                 *bool
	}
	RouteTable struct {
		RouteTableId *string
		RouteSet     []*Route
	}
	DescribeRouteTablesRequest  struct{ Filters []*Filter }
	DescribeRouteTablesResponse struct {
		Response struct{ RouteTableSet []*RouteTable }
	}
	// RoutesRequest creates or deletes routes.
	RoutesRequest struct {
		RouteTableId *string
		Routes       []*Route
	}
)

func NewClientWithSecretId(_, _, _ string) (*Client, error) { return nil, errStub }

func NewDescribeRouteTablesRequest() *DescribeRouteTablesRequest {
	return &DescribeRouteTablesRequest{}
}
func NewCreateRoutesRequest() *RoutesRequest { return &RoutesRequest{} }
func NewDeleteRoutesRequest() *RoutesRequest { return &RoutesRequest{} }

func (*Client) DescribeRouteTables(*DescribeRouteTablesRequest) (*DescribeRouteTablesResponse, error) {
	return nil, errStub
}
func (*Client) CreateRoutes(*RoutesRequest) (any, error) { return nil, errStub }
func (*Client) DeleteRoutes(*RoutesRequest) (any, error) { return nil, errStub }

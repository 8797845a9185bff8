namespace KvCluster.Tests.Grpc.Interop;

/// <summary>Python's grpcio as a client of our server. The cases are in tests/interop/client.py.</summary>
public sealed class GrpcioClientTests(GrpcioClientRun run) : IClassFixture<GrpcioClientRun>
{
    [GrpcioTheory]
    [InlineData("empty_unary")]
    [InlineData("large_unary")]
    [InlineData("client_streaming")]
    [InlineData("server_streaming")]
    [InlineData("duplex_streaming")]
    [InlineData("empty_stream")]
    [InlineData("cancel_before_first_message")]
    [InlineData("cancel_after_first_message")]
    [InlineData("deadline_exceeded_on_sleeping_server")]
    [InlineData("status_code_and_message")]
    [InlineData("special_status_message")]
    [InlineData("unimplemented_method")]
    [InlineData("unimplemented_service")]
    [InlineData("custom_metadata")]
    [InlineData("request_too_large")]
    [InlineData("response_too_large")]
    [InlineData("compressed_request")]
    [InlineData("server_dies_mid_stream")]
    public void Case(string name) => run.AssertPassed(name);
}

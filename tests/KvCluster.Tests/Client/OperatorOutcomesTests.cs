using Grpc.Core;
using KvCluster.Client.Transport;

namespace KvCluster.Tests.Client;

public sealed class OperatorOutcomesTests
{
    /// <summary>The outcome of a change was reported as unknown although no node had got it.</summary>
    [Fact]
    public void ChangeWhoseConnectionTakesTooLong_WasNotSent()
    {
        Assert.True(OperatorOutcomes.WasNotSent(Failure(new TaskCanceledException("It was cancelled.", new TimeoutException("It took too long.")))));
        Assert.False(OperatorOutcomes.WasNotSent(Failure(new IOException("The connection was lost."))));
    }

    private static RpcException Failure(Exception cause) => new(new Status(StatusCode.Unavailable, "", cause));
}

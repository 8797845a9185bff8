using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>What requests keep while they are in the pool, which the whole process shares.</summary>
[Collection(AloneCollection.Name)]
public sealed class RequestPoolTests
{
    // A load of large transactions made the buffer of each one anew, by doubling it from 256 bytes on.
    [Fact]
    public void Rent_LargeRequestsInTurn_MakesFewBuffers()
    {
        const int Requests = 50;
        const int Values = 100;
        var value = new byte[1_000];
        var before = GC.GetAllocatedBytesForCurrentThread();
        for (var number = 0; number < Requests; number++)
        {
            var request = WriteRequest.Rent(Values * value.Length);
            for (var put = 0; put < Values; put++)
                request.Put("key"u8, value);
            request.Return();
        }
        // Threads of tests before may have taken the request in between, but not each time.
        Assert.InRange(GC.GetAllocatedBytesForCurrentThread() - before, 0, Requests / 2 * Values * value.Length);
    }
}

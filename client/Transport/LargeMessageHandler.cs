using KvCluster.Wire;

namespace KvCluster.Client.Transport;

/// <summary>Puts a <see cref="LargeMessageStream"/> before the body of each response. Thread-safe.</summary>
/// <param name="inner">Sends the requests; it is disposed with this.</param>
/// <param name="bytesMax">A larger message is left to the package, whose channel may have a limit.</param>
internal sealed class LargeMessageHandler(HttpMessageHandler inner, int bytesMax = int.MaxValue)
    : BodyHandler(inner, body => new LargeMessageStream(body, bytesMax));

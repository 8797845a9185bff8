namespace KvCluster.Client.Transport;

/// <summary>Puts a <see cref="LargeMessageStream"/> before the body of each response. Thread-safe.</summary>
/// <param name="inner">Sends the requests; it is disposed with this.</param>
/// <param name="bytesMax">A larger message is left to the package, whose channel may have a limit.</param>
internal sealed class LargeMessageHandler(HttpMessageHandler inner, int bytesMax = int.MaxValue) : DelegatingHandler(inner)
{
    protected override async Task<HttpResponseMessage> SendAsync(HttpRequestMessage request, CancellationToken cancellationToken)
    {
        var response = await base.SendAsync(request, cancellationToken).ConfigureAwait(false);
        var received = response.Content;
        // Disposing of the content disposes of the body, which ends the stream at the other side.
        var content = new StreamContent(new LargeMessageStream(await received.ReadAsStreamAsync(cancellationToken).ConfigureAwait(false), bytesMax));
        foreach (var (name, values) in received.Headers.NonValidated)
            content.Headers.TryAddWithoutValidation(name, values);
        response.Content = content;
        return response;
    }
}

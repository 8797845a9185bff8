namespace KvCluster.Client.Transport;

/// <summary>Puts a <see cref="LargeMessageStream"/> before the body of each response. Thread-safe.</summary>
internal sealed class LargeMessageHandler(HttpMessageHandler inner) : DelegatingHandler(inner)
{
    protected override async Task<HttpResponseMessage> SendAsync(HttpRequestMessage request, CancellationToken cancellationToken)
    {
        var response = await base.SendAsync(request, cancellationToken).ConfigureAwait(false);
        var received = response.Content;
        // Disposing of the content disposes of the body, which ends the stream at the other side.
        var content = new StreamContent(new LargeMessageStream(await received.ReadAsStreamAsync(cancellationToken).ConfigureAwait(false)));
        foreach (var (name, values) in received.Headers.NonValidated)
            content.Headers.TryAddWithoutValidation(name, values);
        response.Content = content;
        return response;
    }
}

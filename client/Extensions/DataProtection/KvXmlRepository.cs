using System.Xml.Linq;
using KvCluster.Client;
using Microsoft.AspNetCore.DataProtection.Repositories;

namespace KvCluster.Extensions.DataProtection;

/// <summary>
/// The keys and revocations of a program's data protection, each a key of the cluster whose value is its XML. Nothing is removed. Called by the key manager, on
/// any thread, which waits for the cluster as long as any call of the client does. A <see cref="KvException"/> says that it was not reached.
/// </summary>
/// <param name="client">Makes the calls.</param>
/// <param name="prefix">Of the keys, and of no others.</param>
internal sealed class KvXmlRepository(KvClient client, string prefix) : IXmlRepository
{
    public IReadOnlyCollection<XElement> GetAllElements() => ReadAsync().GetAwaiter().GetResult();

    public void StoreElement(XElement element, string friendlyName)
    {
        ArgumentNullException.ThrowIfNull(element);
        var text = element.ToString(SaveOptions.DisableFormatting);
        client.PutAsync($"{prefix}{element.Name.LocalName}-{Guid.NewGuid():N}", text).AsTask().GetAwaiter().GetResult();
    }

    private async Task<List<XElement>> ReadAsync()
    {
        var elements = new List<XElement>();
        await foreach (var entry in client.ScanAsync(new KvScan { Prefix = prefix, Read = KvReadMode.Leader }).ConfigureAwait(false))
            elements.Add(XElement.Parse(entry.Value.ToUtf8String()));
        return elements;
    }
}

using KvCluster.Client;
using Microsoft.Extensions.Options;

namespace KvCluster.Extensions.DependencyInjection;

/// <summary>
/// Names all mistakes in the options of a client, each in a line of its own, when the host starts or, without a host, when the client is first asked for.
/// Any thread.
/// </summary>
internal sealed class ClientOptionsValidation : IValidateOptions<KvClientOptions>
{
    public ValidateOptionsResult Validate(string? name, KvClientOptions options)
    {
        var mistakes = options.Mistakes();
        // The files of options that are wrong by themselves may be looked for in the wrong place.
        if (mistakes.Count == 0 && KvClient.TlsFailure(options.Tls) is { } failure)
            mistakes.Add(failure);
        if (mistakes.Count == 0)
            return ValidateOptionsResult.Success;
        var client = string.IsNullOrEmpty(name) ? "the KvCluster client" : $"the KvCluster client '{name}'";
        return ValidateOptionsResult.Fail(string.Join($"{Environment.NewLine}  ", mistakes.Prepend($"The options of {client} are invalid:")));
    }
}

using System.IO.Pipelines;

namespace KvCluster.ServiceDefaults.Connections;

/// <summary>A connection's pipe with another reader in front of its input.</summary>
internal sealed class PipeWithInput(PipeReader input, PipeWriter output) : IDuplexPipe
{
    public PipeReader Input => input;

    public PipeWriter Output => output;
}

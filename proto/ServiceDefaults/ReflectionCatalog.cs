// The descriptors that reflection returns: the files of the services that a server maps, and the files that these import. Built once and read by any thread.
using Google.Protobuf.Reflection;
using Grpc.Core;
using Grpc.Reflection.V1;

namespace KvCluster.ServiceDefaults;

/// <summary>The files and symbols of a set of services.</summary>
internal sealed class ReflectionCatalog
{
    private readonly List<string> _services;
    private readonly Dictionary<string, FileDescriptor> _files = [];
    private readonly Dictionary<string, FileDescriptor> _symbols = [];

    public ReflectionCatalog(params IEnumerable<ServiceDescriptor> services)
    {
        _services = [.. services.Select(service => service.FullName)];
        foreach (var service in services)
            Add(service.File);
    }

    /// <summary>The response to one request; an error response if the name is unknown.</summary>
    public ServerReflectionResponse Answer(ServerReflectionRequest request)
    {
        var response = new ServerReflectionResponse { ValidHost = request.Host, OriginalRequest = request };
        switch (request.MessageRequestCase)
        {
            case ServerReflectionRequest.MessageRequestOneofCase.ListServices:
                response.ListServicesResponse = new ListServiceResponse { Service = { _services.Select(name => new ServiceResponse { Name = name }) } };
                break;
            case ServerReflectionRequest.MessageRequestOneofCase.FileByFilename when _files.TryGetValue(request.FileByFilename, out var file):
                response.FileDescriptorResponse = Content(file);
                break;
            case ServerReflectionRequest.MessageRequestOneofCase.FileContainingSymbol when _symbols.TryGetValue(request.FileContainingSymbol, out var file):
                response.FileDescriptorResponse = Content(file);
                break;
            case ServerReflectionRequest.MessageRequestOneofCase.None:
                response.ErrorResponse = Error(StatusCode.InvalidArgument, "The request contains no query.");
                break;
            default:
                // Extensions belong to proto2. These files are proto3 and have none.
                response.ErrorResponse = Error(StatusCode.NotFound, "There is no such file, symbol or extension.");
                break;
        }
        return response;
    }

    private static FileDescriptorResponse Content(FileDescriptor file) => new() { FileDescriptorProto = { file.SerializedData } };

    private static ErrorResponse Error(StatusCode code, string message) => new() { ErrorCode = (int)code, ErrorMessage = message };

    private void Add(FileDescriptor file)
    {
        if (!_files.TryAdd(file.Name, file))
            return;
        foreach (var import in file.Dependencies)
            Add(import);
        foreach (var service in file.Services)
        {
            _symbols[service.FullName] = file;
            foreach (var method in service.Methods)
                _symbols[method.FullName] = file;
        }
        foreach (var enumeration in file.EnumTypes)
            _symbols[enumeration.FullName] = file;
        foreach (var message in file.MessageTypes)
            Add(message);
    }

    private void Add(MessageDescriptor message)
    {
        _symbols[message.FullName] = message.File;
        foreach (var field in message.Fields.InDeclarationOrder())
            _symbols[field.FullName] = message.File;
        foreach (var enumeration in message.EnumTypes)
            _symbols[enumeration.FullName] = message.File;
        foreach (var nested in message.NestedTypes)
            Add(nested);
    }
}
